package isolate

// DeviceNumber is the number of a device file: what the kernel filters by, whatever the file is called.
type DeviceNumber struct{ Major, Minor uint32 }

// Instruction is one of BPF (Documentation/bpf/standardization/instruction-set.rst in torvalds/linux), with the layout
// of the kernel's struct bpf_insn.
type Instruction struct {
	Code uint8
	// The one that is written in the lower half, the one that is read in the upper.
	Registers uint8
	Offset    int16
	Value     int32
}

// Codes of the instructions of a filter.
const (
	// BPF_LDX | BPF_MEM | BPF_W.
	loadWord = 0x61
	// BPF_ALU64 | BPF_MOV | BPF_K.
	set = 0xb7
	// BPF_ALU64 | BPF_AND | BPF_K.
	and = 0x57
	// BPF_JMP | BPF_JEQ | BPF_K.
	jumpEqual = 0x15
	// BPF_JMP | BPF_JNE | BPF_K.
	jumpOther = 0x55
	exit      = 0x95 // BPF_JMP | BPF_EXIT
)

// Registers: r0 is the answer, and r1 points to the question, struct bpf_cgroup_dev_ctx of include/uapi/linux/bpf.h:
// the access in the upper half of its first word and the kind in the lower, then the major and the minor number.
const (
	answer, question, kind, major, minor = 0, 1, 2, 3, 4

	charDevice  = 2 // BPF_DEVCG_DEV_CHAR
	deny, allow = 0, 1
)

// MostNumbers is how many devices a filter can deny: old kernels take 4096 instructions.
const MostNumbers = 2000

// Filter is a program of the type BPF_PROG_TYPE_CGROUP_DEVICE that denies these character devices, to be read, written
// and made, and allows everything else. What a group above denies stays denied: the kernel asks each program.
func Filter(denied []DeviceNumber) []Instruction {
	const read = question << 4
	if len(denied) == 0 {
		// The kernel takes no instruction that is never reached.
		return []Instruction{{Code: set, Registers: answer, Value: allow}, {Code: exit}}
	}

	program := []Instruction{
		{Code: loadWord, Registers: read | kind},
		{Code: and, Registers: kind, Value: 0xffff},
		{Code: jumpOther, Registers: kind, Offset: int16(2 + 2*len(denied)), Value: charDevice}, //nolint:gosec // at most MostNumbers
		{Code: loadWord, Registers: read | major, Offset: 4},
		{Code: loadWord, Registers: read | minor, Offset: 8},
	}

	for i, n := range denied {
		// Each has two instructions, and behind the last are the two that allow.
		left := len(denied) - i - 1
		program = append(program,
			Instruction{Code: jumpOther, Registers: major, Offset: 1, Value: int32(n.Major)},                 //nolint:gosec // 12 bits
			Instruction{Code: jumpEqual, Registers: minor, Offset: int16(2*left + 2), Value: int32(n.Minor)}) //nolint:gosec // 20 bits
	}

	return append(program,
		Instruction{Code: set, Registers: answer, Value: allow}, Instruction{Code: exit},
		Instruction{Code: set, Registers: answer, Value: deny}, Instruction{Code: exit})
}
