//go:build amd64 || arm64

package crash

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pinnedMemory is memory that stays where it is: the frame, and the arguments and the environment for execve(2).
type pinnedMemory struct {
	frame *frame
	path  uintptr
	free  []byte
}

func newBlock(refusal, alone string, args, env []string) (*pinnedMemory, error) {
	const self = "/proc/self/exe"
	size := int(unsafe.Sizeof(frame{})) + len(self) + len(refusal) + len(alone) + len(stuckText) + 8*(len(args)+len(env)+6) + 64
	for _, list := range [][]string{args, env} {
		for _, s := range list {
			size += len(s) + 1
		}
	}

	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, err
	}

	b := &pinnedMemory{frame: (*frame)(unsafe.Pointer(&memory[0])), free: memory[unsafe.Sizeof(frame{}):]}
	f := b.frame
	copy(f.name[:], crashVariable+"=@@")

	for i := range f.calls {
		f.calls[i] = ' '
	}

	f.crash = uintptr(unsafe.Pointer(&f.name[len(f.name)-2]))
	pointers := b.reservePointers(len(args) + 1)
	for i, s := range args {
		pointers[i] = b.copyString(s)
	}

	f.argv = uintptr(unsafe.Pointer(&pointers[0]))
	pointers = b.reservePointers(len(env) + 2)
	for i, s := range env {
		pointers[i] = b.copyString(s)
	}

	pointers[len(env)] = uintptr(unsafe.Pointer(&f.name[0]))
	f.envp = uintptr(unsafe.Pointer(&pointers[0]))
	f.refusal, f.length = b.copyString(refusal), uintptr(len(refusal))
	f.alone, f.aloneSize = b.copyString(alone), uintptr(len(alone))
	f.stuck, f.stuckSize = b.copyString(stuckText), uintptr(len(stuckText))
	b.path = b.copyString(self)

	return b, nil
}

// reservePointers takes room for a list that a zero ends.
func (p *pinnedMemory) reservePointers(n int) []uintptr {
	p.free = p.free[-uintptr(unsafe.Pointer(&p.free[0]))%8:]
	list := unsafe.Slice((*uintptr)(unsafe.Pointer(&p.free[0])), n)
	p.free = p.free[8*n:]

	return list
}

// copyString copies a string, which a zero ends.
func (p *pinnedMemory) copyString(s string) uintptr {
	at := uintptr(unsafe.Pointer(&p.free[0]))
	p.free = p.free[copy(p.free, s)+1:]
	return at
}

// copyFileLimit copies what the limit of open files was before Go raised it, as the package syscall puts it back for
// what it executes. Without this the command would have the raised one.
func (p *pinnedMemory) copyFileLimit(soft, hard uint64) uintptr {
	var now unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &now) != nil || soft >= now.Cur || now.Max != hard || now.Cur != hard-1 {
		return 0
	}

	limit := p.reservePointers(2)
	limit[0], limit[1] = uintptr(soft), uintptr(hard)

	return uintptr(unsafe.Pointer(&limit[0]))
}

// kernelSigaction is the kernel's struct sigaction, the same on both architectures (Go's runtime/defs_linux_*.go).
type kernelSigaction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

// SIG_IGN.
const ignoredHandler = 1

func sigaction(sig unix.Signal, set, had *kernelSigaction) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(had)), 8, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// programHeader is Elf64_Phdr of elf(5).
type programHeader struct {
	kind, flags                                         uint32
	offset, address, physical, inFile, inMemory, aligns uint64
}

// ownCode finds the part of memory that the code of this program was loaded into, by its program headers
// (getauxval(3)).
func ownCode() (low, high uintptr, err error) {
	const (
		headers, count = 3, 5 // AT_PHDR, AT_PHNUM
		// PT_LOAD, PT_PHDR, PF_X.
		load, self, executable = 1, 6, 1
	)

	vector, err := unix.Auxv()
	if err != nil {
		return 0, 0, err
	}

	var at, n uintptr
	for _, pair := range vector {
		switch pair[0] {
		case headers:
			at = pair[1]
		case count:
			n = pair[1]
		}
	}

	if at == 0 {
		return 0, 0, errors.New("the kernel does not say where this program is")
	}

	list := unsafe.Slice((*programHeader)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), n)
	bias, handler := uintptr(0), handlerAddress()
	for _, h := range list {
		if h.kind == self {
			// A program that can be anywhere is somewhere else than its headers say.
			bias = at - uintptr(h.address)
		}
	}

	for _, h := range list {
		low = bias + uintptr(h.address)
		high = low + uintptr(h.inMemory)
		if h.kind == load && h.flags&executable != 0 && low <= handler && handler < high {
			return low, high, nil
		}
	}

	return 0, 0, errors.New("no part of this program has its own code")
}
