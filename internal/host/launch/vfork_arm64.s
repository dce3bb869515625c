#include "textflag.h"

// func rawVfork(flags uintptr) (pid, errno uintptr)
//
// The child runs first, on the same stack. The return address is in the link register, which each of the two has for itself
// (as syscall.rawVforkSyscall does).
TEXT ·rawVfork(SB),NOSPLIT,$0-24
	MOVD	flags+0(FP), R0
	MOVD	$0, R1
	MOVD	$0, R2
	MOVD	$0, R3
	MOVD	$0, R4
	MOVD	$220, R8	// clone
	SVC
	CMN	$4095, R0
	BCC	ok
	MOVD	ZR, pid+8(FP)
	NEG	R0, R0
	MOVD	R0, errno+16(FP)
	RET
ok:
	MOVD	R0, pid+8(FP)
	MOVD	ZR, errno+16(FP)
	RET
