# What the device knows of the wire: generated from schema/ by tools/gen_tables.py, not edited.
#
# SERVER has a line for each type of server message: the type, its seq class and its fields, parted by blanks. It is one text,
# taken apart for each message, because tuples would fill 9 KiB of a small heap, and a dictionary of texts 3. Each field is
# kind, requirement, name and, after "=", what is allowed.
#   kind      JSON 0 any value         STRING 1               ID 2 string of 1 to 256 characters (code points)
#             U32 3 integer 0..2^32-1, 1.0 counts, true does not       BOOL 4       ENUM 5 one of what is allowed, parted by "|"
#             FORMAT 6 object: encoding one of what is allowed, sampleRate absent or an integer > 0
#             WORDS 7 string: words of digits and letters, joined by single joints; allowed: first letter, last one, joints
#             TOKENS 8 array of WORDS of at most 64 characters
#   required  - may be absent, + must be present (null included, for JSON), ? must be present when ok is false.
#             A member that is present must be of its kind in each case.
#   /PHASE    what follows, up to the next of these, belongs to that phase of a tool.stream alone (§7.5).
# seq class   0 transient: seq is 0.  1 sequenced: seq is 1..2^32-1.  2 sessionless: seq is 0..2^32-1 (§4.1)

SERVER = (
    "\n"
    "ack 0 3+upTo\n"
    "audio.start 0 2+itemId 3+epoch 2-turnId\n"
    "error 2 7+code=AZ_ 4+recoverable 1-message\n"
    "interrupted 1 3+epoch 1-reason\n"
    "pong 0\n"
    "ready 0 2+sessionId 6+input=pcm16|pcmu|opus 6+output=pcm16|pcmu|opus 3-resumedFrom 8-capabilities=az.-\n"
    "text 1 1+text 4-final 2-turnId 3-epoch\n"
    "tool.call.delta 1 2+callId 3+epoch 0+preview 1-name 2-turnId\n"
    "tool.call 1 2+callId 1+name 0+arguments 2+turnId 3+epoch\n"
    "tool.stream 1 2+callId 1+name 2+turnId 3+epoch 5+phase=start|arguments-delta|arguments-complete|progress|settled|cancelled|failed /arguments-delta 1+delta /arguments-complete 0+arguments /progress 0+progress /settled 4+ok 5?code=INTERRUPTED|REJECTED|INVALID|TIMEOUT|FAILED /failed 1+message\n"
    "transcript 1 5+role=user|agent 1+text 4+final 2-turnId 3-epoch 2-itemId\n"
    "turn.state 1 2+turnId 3+epoch 5+state=listening|thinking|speaking|acting|idle\n"
)
