#include "textflag.h"

// exitThread ends the thread that it runs in: exit(2), which is not exit_group(2). It is a handler of a signal, so it is called by
// the kernel, and needs nothing of Go.
TEXT exitThread<>(SB),NOSPLIT|NOFRAME,$0
again:
	MOVD	$0, R0
	MOVD	$93, R8	// exit
	SVC
	B	again

// func exitHandler() uintptr
TEXT ·exitHandler(SB),NOSPLIT,$0-8
	MOVD	$exitThread<>(SB), R0
	MOVD	R0, ret+0(FP)
	RET
