# The codec drivers against chips that remember their registers.
from fake_machine import I2C, Chip, Pin, codec_chips, fresh
from support import raises
from vrt.errors import ConfigError

BUS = "SDA 8, SCL 18"


def made(module, name, chips=None, **options):
    # A driver on a fresh bus; the machine.
    machine = fresh(codec_chips() if chips is None else chips)
    source = __import__("vrt.audio.codecs." + module, None, None, [name])
    source.time = machine
    return getattr(source, name)(I2C(0, sda=Pin(8), scl=Pin(18), freq=400000), BUS, **options), machine


def written(machine, address):
    # (register, value) of all writes, in order.
    return [entry[2:] for entry in machine.log if entry[0] == "i2c" and entry[1] == address]


def test_a_missing_chip_is_named_with_its_bus():
    for module, name, address in [("es8311", "ES8311", "0x18"), ("es7210", "ES7210", "0x40")]:
        text = str(raises(ConfigError, made, module, name, {}))
        assert name in text
        assert address in text
        assert BUS in text
        assert "does not answer" in text


def test_another_chip_at_the_address_is_not_taken_for_it():
    text = str(raises(ConfigError, made, "es8311", "ES8311", {0x18: Chip({0xFD: 0x83, 0xFE: 0x16})}))
    assert "another chip" in text
    assert "0x16" in text
    raises(ConfigError, made, "es7210", "ES7210", {0x40: Chip({0x3D: 0x72})})


def test_es8311_takes_its_clock_from_the_bit_clock_and_is_silent_at_first():
    machine = made("es8311", "ES8311")[1]
    registers = machine.chips[0x18].registers
    writes = written(machine, 0x18)
    assert writes[0] == (0x00, 0x1F)
    assert machine.ticks_ms() >= 20  # the reset takes its time
    assert registers[0x00] == 0x80  # runs, as a peripheral
    assert registers[0x01] == 0xBF
    assert registers[0x09] == registers[0x0A] == 0x0C  # 16 bits, I2S
    assert registers[0x31] == 0x60  # muted


def test_es8311_makes_256_ticks_of_what_each_direction_has():
    codec, machine = made("es8311", "ES8311")
    registers = machine.chips[0x18].registers
    codec.listen(16000)
    assert registers[0x02] == 2 << 3  # 64 times 4
    assert registers[0x17] == 0xBF
    assert registers[0x12] == 0x02  # the DAC is off
    assert registers[0x31] == 0x60
    codec.play(24000)
    assert registers[0x02] == 3 << 3  # 32 times 8
    assert registers[0x17] == 0x00  # the ADC is silent
    assert registers[0x12] == 0x00
    assert registers[0x31] == 0x00
    assert registers[0x04] == 0x10
    codec.play(16000)
    assert registers[0x04] == 0x20
    for way in (codec.listen, codec.play):
        assert "44100" in str(raises(ConfigError, way, 44100))


def test_es8311_volume_is_in_percent_and_mute_keeps_it():
    codec, machine = made("es8311", "ES8311")
    registers = machine.chips[0x18].registers
    levels = []
    for percent in (-5, 0, 1, 50, 100, 120):
        codec.volume(percent)
        levels.append(registers[0x32])
    assert levels[0] == levels[1] == 0
    assert levels[4] == levels[5] == 0xBF  # 0 dB
    assert 0 < levels[2] < levels[3] < levels[4]
    codec.mute(True)
    assert registers[0x31] == 0x60
    codec.mute(False)
    assert registers[0x31] == 0
    assert registers[0x32] == 0xBF


def test_es7210_hears_two_microphones_as_a_peripheral():
    codec, machine = made("es7210", "ES7210")
    assert written(machine, 0x40) == []
    machine.chips[0x40].registers[0x08] = 0x21
    codec.listen(16000)
    registers = machine.chips[0x40].registers
    assert written(machine, 0x40)[-3:-2] == [(0x00, 0x41)]  # it starts at the end; then it is not muted
    assert registers[0x08] == 0x20
    assert registers[0x11] == 0x60  # 16 bits, I2S
    assert registers[0x12] == 0x00
    assert registers[0x43] == registers[0x44] == 0x1A
    assert registers[0x01] == 0x34
    assert registers[0x14] == registers[0x15] == 0
    codec.mute(True)
    assert registers[0x14] == registers[0x15] == 3
    raises(ConfigError, codec.listen, 48000)


def test_pi4ioe_is_low_before_it_drives():
    line, machine = made("expander", "PI4IOE5V6408", address=0x43, bits=0x6E)
    registers = machine.chips[0x43].registers
    order = [register for register, _ in written(machine, 0x43)]
    assert order.index(0x05) < order.index(0x03)
    assert registers[0x03] == 0x6E
    assert registers[0x07] == 0
    assert registers[0x05] & 0x6E == 0
    line.value(1)
    assert registers[0x05] == 0x6E
    line.value(0)
    assert registers[0x05] == 0


def test_tca9555_leaves_other_pins_alone():
    line, machine = made("expander", "TCA9555", address=0x20, bits=0x100)
    registers = machine.chips[0x20].registers
    order = [register for register, _ in written(machine, 0x20)]
    assert order == [3, 7]  # low before it drives, and only its half
    assert registers[7] == 0xFE
    assert registers[3] == 0xFE
    line.value(1)
    assert registers[3] == 0xFF
    registers[3] = 0x0F
    line.value(0)
    assert registers[3] == 0x0E
    assert registers[2] == registers[6] == 0xFF


def test_outputs_that_are_held_stay_high():
    line, machine = made("expander", "TCA9555", address=0x20, bits=0x100, held=0x43)
    registers = machine.chips[0x20].registers
    registers[2] = 0
    for level in (1, 0):
        line.value(level)
        assert registers[2] == 0x43
        assert registers[3] & 1 == level
    assert registers[6] == 0xFF & ~0x43
    line, machine = made("expander", "PI4IOE5V6408", address=0x43, bits=0x02, held=0x40)
    registers = machine.chips[0x43].registers
    assert registers[3] == 0x42
    line.value(1)
    assert registers[5] == 0x42
    line.value(0)
    assert registers[5] == 0x40


def test_a_chip_that_goes_away_is_an_accident_and_no_wrong_configuration():
    codec, machine = made("es8311", "ES8311")
    machine.chips.clear()
    error = raises(OSError, codec.mute, True)
    assert "ES8311" in str(error)
    assert "does not answer" in str(error)


def test_a_chip_is_asked_again_before_it_is_given_up():
    for deaf in (1, 2):
        codec, machine = made("es8311", "ES8311")
        machine.deaf = deaf
        codec.mute(True)
        assert machine.chips[0x18].registers[0x31] == 0x60
        machine.deaf = deaf
        assert codec.read(0x31) == 0x60
    machine.deaf = 3
    raises(OSError, codec.mute, False)
    assert machine.chips[0x18].registers[0x31] == 0x60
