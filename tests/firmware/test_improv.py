# Against the published format, https://www.improv-wifi.com/serial: what stands in these packets was put together by hand from
# its tables, the credentials are its example.
from vrt.setup.improv import PROVISIONED, PROVISIONING, READY, Improv, packet


def wire(text):
    # Hex, with words in braces.
    made = b""
    for part in text.replace("{", " {").replace("}", "} ").split():
        made += part[1:-1].encode() if part[0] == "{" else bytes([int(part, 16)])
    return made


HEADER = "49 4D 50 52 4F 56 01 "
# The sum of the header is 0x1DF + 1.
SETTINGS = wire(HEADER + "03 20 01 1E 0C {MyWirelessAP} 10 {mysecurepassword}")
SETTINGS += bytes([sum(SETTINGS) & 255])
CURRENT = wire(HEADER + "03 02 02 00 E5")
INFO = wire(HEADER + "03 02 03 00 E6")
NETWORKS = wire(HEADER + "03 02 04 00 E7")

NO_ERROR = wire(HEADER + "02 01 00 E1")
IS_INVALID = wire(HEADER + "02 01 01 E2")
IS_UNKNOWN = wire(HEADER + "02 01 02 E3")
CANNOT_CONNECT = wire(HEADER + "02 01 03 E4")
IS_READY = wire(HEADER + "01 01 02 E2")
IS_PROVISIONING = wire(HEADER + "01 01 03 E3")
IS_PROVISIONED = wire(HEADER + "01 01 04 E4")


class Port:
    def __init__(self, networks=(), url=""):
        self.out = []
        self.networks = networks
        self.improv = Improv(
            self.write, ("ESPHome", "2021.11.0", "ESP32-C3", "Temperature Monitor"), self.scan, url
        )

    def write(self, data):
        assert data[:1] == data[-1:] == b"\n"
        self.out.append(bytes(data[1:-1]))

    def scan(self):
        if self.networks is None:
            raise OSError("Wifi Unknown Error 0x0102")
        return self.networks

    def say(self, data):
        # Returns what it answers.
        self.out.clear()
        for byte in data:
            self.improv.feed(byte)
        return list(self.out)


def test_the_current_state_is_told():
    assert Port().say(CURRENT) == [NO_ERROR, IS_READY]


def test_the_example_of_credentials_is_understood():
    assert SETTINGS[7:9] == b"\x03\x20"
    port = Port()
    assert port.say(SETTINGS) == [NO_ERROR, IS_PROVISIONING]
    assert port.improv.wanted == ("MyWirelessAP", "mysecurepassword")
    assert port.improv.state == PROVISIONING
    assert port.say(CURRENT) == [NO_ERROR, IS_PROVISIONING]


def test_credentials_that_work_are_confirmed_with_an_address():
    port = Port(url="http://host/")
    port.say(SETTINGS)
    port.out.clear()
    port.improv.joined()
    result = wire(HEADER + "04 0F 01 0D 0C {http://host/}")
    result += bytes([sum(result) & 255])
    assert port.out == [IS_PROVISIONED, result]
    assert port.say(CURRENT) == [NO_ERROR, IS_PROVISIONED, result]
    assert port.improv.state == PROVISIONED
    assert port.improv.wanted is None


def test_without_an_address_the_result_is_empty():
    port = Port()
    port.say(SETTINGS)
    port.improv.joined()
    assert port.out[-1] == wire(HEADER + "04 02 01 00 E5")


def test_credentials_that_do_not_work_are_a_typed_error_and_others_may_follow():
    port = Port()
    port.say(SETTINGS)
    port.out.clear()
    port.improv.failed()
    assert port.out == [CANNOT_CONNECT, IS_READY]
    assert port.improv.state == READY
    assert port.say(SETTINGS) == [NO_ERROR, IS_PROVISIONING]


def test_device_information_is_four_strings():
    expected = wire(
        HEADER + "04 31 03 2F 07 {ESPHome} 09 {2021.11.0} 08 {ESP32-C3} 13 {Temperature}  20 {Monitor}"
    )
    expected += bytes([sum(expected) & 255])

    assert len(expected) == 9 + 0x31 + 1
    assert Port().say(INFO) == [NO_ERROR, expected]


def test_networks_are_told_one_by_one_and_then_the_end():
    port = Port(
        [
            (b"MyWirelessNetwork", b"\0" * 6, 6, -70, 3, False),
            (b"MyWirelessNetwork", b"\0" * 6, 1, -60, 3, False),
            (b"Open", b"\0" * 6, 6, -80, 0, False),
            (b"", b"\0" * 6, 6, -30, 3, True),
            (b"\xff\xfe", b"\0" * 6, 6, -40, 3, False),
        ]
    )
    first = wire(HEADER + "04 1C 04 1A 11 {MyWirelessNetwork} 03 {-60} 03 {YES}")
    second = wire(HEADER + "04 0E 04 0C 04 {Open} 03 {-80} 02 {NO}")
    assert port.say(NETWORKS) == [
        NO_ERROR,
        first + bytes([sum(first) & 255]),
        second + bytes([sum(second) & 255]),
        wire(HEADER + "04 02 04 00 E8"),
    ]


def test_no_networks_and_a_radio_that_refuses_are_an_empty_list():
    assert Port().say(NETWORKS) == Port(None).say(NETWORKS) == [NO_ERROR, wire(HEADER + "04 02 04 00 E8")]


def test_a_wrong_checksum_is_an_error_and_changes_nothing():
    for good in (CURRENT, SETTINGS):
        port = Port()
        assert port.say(good[:-1] + bytes([good[-1] ^ 1])) == [IS_INVALID]
        assert port.improv.wanted is None


def test_unknown_commands_are_an_error():
    for command in (0, 5, 6, 0xFE):
        assert Port().say(packet(3, bytes([command, 0]))) == [IS_UNKNOWN]


def test_malformed_commands_are_an_error():
    for data in (
        b"",
        b"\x02",
        b"\x02\x01",  # says one byte, has none
        b"\x02\x00\x00",
        b"\x01\x00",
        b"\x01\x02\x05a",
        b"\x01\x02\x01a",  # no password at all
        b"\x01\x03\x01a\x05",
        b"\x01\x04\x01a\x00x",
        b"\x01\x02\x00\x00",  # a network without a name
        b"\x01\x04\x02\xff\xff\x00",  # no UTF-8
        bytes([1, 35, 33]) + b"a" * 33 + b"\x00",
        bytes([1, 68, 1]) + b"a" + bytes([65]) + b"p" * 65,
    ):
        port = Port()
        assert port.say(packet(3, data)) == [IS_INVALID], data
        assert port.improv.wanted is None


def test_an_open_network_has_an_empty_password():
    port = Port()
    port.say(packet(3, b"\x01\x06\x04Open\x00"))
    assert port.improv.wanted == ("Open", "")


def test_other_types_and_versions_are_passed_over():
    for data in (IS_READY, NO_ERROR, packet(4, b"\x01\x00"), CURRENT[:6] + b"\x02" + CURRENT[7:]):
        assert Port().say(data) == []


def test_a_packet_may_come_in_any_pieces_and_between_anything():
    noise = (
        b"",
        b"I",
        b"IMPROV",
        b"IMPRO",
        b"ets Jun  8 2016\r\nrst:0x1 (POWERON_RESET)\r\n",
        bytes(range(0x49)),
        b"IMPROV\x02",
    )
    for before in noise:
        for cut in range(len(CURRENT)):
            port = Port()
            assert port.say(before + CURRENT[:cut]) == []
            assert port.say(CURRENT[cut:]) == [NO_ERROR, IS_READY], (before, cut)
            assert port.say(before + CURRENT) == [NO_ERROR, IS_READY]


def test_a_packet_that_breaks_off_is_given_up():
    for cut in range(1, len(SETTINGS)):
        port = Port()
        port.say(SETTINGS[:cut])
        port.improv.reset()  # after a pause
        assert port.say(CURRENT) == [NO_ERROR, IS_READY]


def test_what_is_no_part_of_a_packet_is_known():
    improv = Port().improv
    assert not improv.feed(3)
    taken = [improv.feed(byte) for byte in CURRENT]
    assert all(taken)  # the type of a command is 3, which is Ctrl-C
    assert not improv.feed(3)
    assert improv.feed(0x49)
    assert not improv.feed(3)
