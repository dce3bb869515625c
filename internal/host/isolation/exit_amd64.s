#include "textflag.h"

// exitThread ends the thread that it runs in: exit(2), which is not exit_group(2). It is a handler of a signal, so it is called by
// the kernel, and needs nothing of Go.
TEXT exitThread<>(SB),NOSPLIT|NOFRAME,$0
again:
	MOVQ	$0, DI
	MOVQ	$60, AX	// exit
	SYSCALL
	JMP	again

// func exitHandler() uintptr
TEXT ·exitHandler(SB),NOSPLIT,$0-8
	LEAQ	exitThread<>(SB), AX
	MOVQ	AX, ret+0(FP)
	RET
