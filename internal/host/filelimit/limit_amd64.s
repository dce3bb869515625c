#include "textflag.h"

// func getLimit(limit *[2]uint64)
TEXT ·getLimit(SB),NOSPLIT,$0-8
	XORL	DI, DI
	MOVL	$7, SI	// RLIMIT_NOFILE
	XORL	DX, DX
	MOVQ	limit+0(FP), R10
	MOVL	$302, AX	// prlimit64
	SYSCALL
	RET
