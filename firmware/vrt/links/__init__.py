# A link carries whole messages between the device and its host. Every link has the same verbs (see ws.py):
#   open(now)  poll(now) -> one of the events below  send_text(buf, n)  send_audio(buf, n)  writable  close(code)
# After TEXT or AUDIO the message is `rx[0:n]`, valid until the next poll. Sleep on `sock` only after NONE, or
# while unread() is false: bytes that have left the socket no longer wake anybody.
NONE = 0
OPEN = 1
TEXT = 2
AUDIO = 3
CLOSED = 4
