package isolate

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"
)

// interpret runs a program over the question whether a device may be used, as the kernel does, and fails where its verifier would.
func interpret(program []Instruction, access, kind, major, minor uint32) (answer uint64, err error) {
	var question [12]byte
	for i, word := range []uint32{access<<16 | kind, major, minor} {
		binary.LittleEndian.PutUint32(question[4*i:], word)
	}
	var registers [11]uint64
	written := [11]bool{1: true}
	for at, steps := 0, 0; ; at, steps = at+1, steps+1 {
		if at < 0 || at >= len(program) || steps > len(program) {
			return 0, errors.New("it jumps out of itself, or back")
		}
		i := program[at]
		to, from := i.Registers&15, i.Registers>>4
		if i.Code == exit && written[0] {
			return registers[0], nil
		}
		if i.Code != loadWord && i.Code != set && !written[to] || i.Code == loadWord && (from != 1 || i.Offset < 0 || i.Offset%4 != 0 || int(i.Offset)+4 > len(question)) {
			return 0, errors.New("it reads what was not written, or is not there")
		}
		switch i.Code {
		case loadWord:
			registers[to] = uint64(binary.LittleEndian.Uint32(question[i.Offset:]))
		case set:
			registers[to] = uint64(i.Value)
		case and:
			registers[to] &= uint64(i.Value)
		case jumpEqual, jumpOther:
			if (registers[to] == uint64(i.Value)) == (i.Code == jumpEqual) {
				at += int(i.Offset)
			}
		default:
			return 0, errors.New("it has an instruction that is not known")
		}
		written[to] = true
	}
}

// isReached reports whether every instruction can be reached; the verifier wants that.
func isReached(program []Instruction) bool {
	reached := make([]bool, len(program))
	reached[0] = true
	for at, i := range program {
		jumps := i.Code == jumpEqual || i.Code == jumpOther
		if reached[at] && jumps {
			reached[at+1+int(i.Offset)] = true
		}
		if reached[at] && i.Code != exit {
			reached[at+1] = true
		}
	}
	return !slices.Contains(reached, false)
}

// TestFilter: exactly the devices of these numbers are denied, for every access, and no block device of the same number.
func TestFilter(t *testing.T) {
	const blockDevice, character = 1, 2
	most := make([]DeviceNumber, MostNumbers)
	for i := range most {
		most[i] = DeviceNumber{195, uint32(i)} //nolint:gosec // small
	}
	for name, c := range map[string]struct {
		denied []DeviceNumber
		is     map[DeviceNumber]bool // denied
	}{
		"none":      {nil, map[DeviceNumber]bool{{195, 0}: false, {0, 0}: false}},
		"one":       {[]DeviceNumber{{195, 1}}, map[DeviceNumber]bool{{195, 1}: true, {195, 0}: false, {195, 2}: false, {1, 195}: false, {195, 255}: false, {194, 1}: false, {1, 1}: false}},
		"several":   {[]DeviceNumber{{195, 0}, {195, 2}, {507, 12}, {226, 128}}, map[DeviceNumber]bool{{195, 0}: true, {195, 1}: false, {195, 2}: true, {507, 12}: true, {507, 2}: false, {226, 128}: true, {226, 12}: false, {195, 128}: false}},
		"largest":   {[]DeviceNumber{{4095, 1<<20 - 1}}, map[DeviceNumber]bool{{4095, 1<<20 - 1}: true, {4095, 1<<20 - 2}: false, {4094, 1<<20 - 1}: false}},
		"very many": {most, map[DeviceNumber]bool{most[0]: true, most[MostNumbers-1]: true, {195, MostNumbers}: false, {194, 0}: false}},
	} {
		program := Filter(c.denied)
		if len(program) > 4096 || !isReached(program) {
			t.Errorf("%s: the kernel does not take its %d instructions", name, len(program))
		}
		for n, denied := range c.is {
			for access := uint32(1); access < 8; access++ { // mknod, read, write
				for _, kind := range []uint32{blockDevice, character} {
					answer, err := interpret(program, access, kind, n.Major, n.Minor)
					if want := !denied || kind == blockDevice; err != nil || (answer == 1) != want || answer > 1 {
						t.Errorf("%s: access %d of kind %d to %v: %d, %v", name, access, kind, n, answer, err)
					}
				}
			}
		}
	}
}
