# Characters that a peer has escaped by halves. Seldom needed, and forgotten after use.


def join(buf, n):
    # Writes escaped surrogates (\ud83d\ude00) in the JSON of buf[0:n] as the character they mean, a lone one as U+FFFD;
    # returns the new length. MicroPython would make broken characters of them, which no peer takes in a result.
    high = joint = -1  # the first half of a pair, and where the second would be
    i = buf.find(b"\\", 0, n)
    while i >= 0:
        end = i + 2
        if buf[i + 1] == 0x75:  # u
            end = i + 6
            unit = int(bytes(buf[i + 2 : end]), 16)
            if 0xD800 <= unit < 0xE000:
                char = b"\xef\xbf\xbd"
                if unit < 0xDC00:
                    high = unit - 0xD7C0  # what the pair stands for, in units of 0x400
                elif i == joint:  # by hand, for chr() would keep the character as a name
                    low = unit & 0x3FF
                    char = (
                        0xF0 | high >> 8,
                        0x80 | high >> 2 & 63,
                        0x80 | (high & 3) << 4 | low >> 6,
                        0x80 | low & 63,
                    )
                    char = bytes(char)
                    i -= 3  # over what its first half alone became
                joint = i + len(char)
                buf[i:joint] = char
                buf[joint : joint + n - end] = buf[end:n]
                n -= end - joint
                end = joint
                if unit >= 0xDC00:
                    joint = -1
        i = buf.find(b"\\", end, n)
    return n
