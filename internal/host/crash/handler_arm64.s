#include "textflag.h"

GLOBL frame<>(SB), NOPTR, $8

// func setFrame(address uintptr)
TEXT ·setFrame(SB),NOSPLIT,$0-8
	MOVD	address+0(FP), R0
	MOVD	R0, frame<>(SB)
	RET

// func handlerAddress() uintptr
TEXT ·handlerAddress(SB),NOSPLIT,$0-8
	MOVD	$handler<>(SB), R0
	MOVD	R0, ret+0(FP)
	RET

// handler is a handler of sigaction(2) with SA_SIGINFO: signal R0, siginfo R1, ucontext R2. handler_amd64.s says what it
// does. The registers from R9 on are free: rt_sigreturn(2) restores all.
TEXT handler<>(SB),NOSPLIT|NOFRAME,$0
	MOVD	frame<>(SB), R19
	MOVD	440(R2), R20	// uc_mcontext.pc
	MOVW	8(R1), R21	// si_code
	CMPW	$0, R21	// positive from the kernel, for a fault
	BGT	where
	CMNW	$6, R21	// -6 is SI_TKILL: abort(3) and raise(3) send it to their own thread
	BNE	other
where:
	MOVD	8(R19), R9
	CMP	R9, R20
	BLO	outside
	MOVD	16(R19), R9
	CMP	R9, R20
	BHS	outside
other:
	CMPW	$6, R0	// SIGABRT
	BEQ	standard
	MOVD	0(R19), R9
	JMP	(R9)
standard:	// as without a handler: the default action, and the signal again, which is blocked until we return
	MOVD	$6, R0
	ADD	$96, R19, R1
	MOVD	$0, R2
	MOVD	$8, R3
	MOVD	$134, R8	// rt_sigaction
	SVC
	MOVD	$172, R8	// getpid
	SVC
	MOVD	$6, R1
	MOVD	$129, R8	// kill
	SVC
	RET
outside:
	MOVD	80(R19), R9
	CBNZ	R9, again
	CMPW	$6, R0
	BEQ	refuse
again:
	MOVD	88(R19), R9
	CBNZ	R9, park
	MOVD	24(R19), R9
	CBZ	R9, other
	MOVD	R0, R20
	MOVD	R1, R21
	MOVD	R2, R22
	MOVD	216(R19), R9
	CBZ	R9, note
	MOVD	80(R19), R9
	SUB	$1, R9, R10
	TST	R9, R10	// not zero with two calls and more
	BEQ	note
	MOVD	$2, R0
	MOVD	224(R19), R1
	MOVD	232(R19), R2
	MOVD	$64, R8	// write
	SVC
	MOVD	R20, R0
note:
	MOVD	56(R19), R10
	ADD	$64, R0, R9	// '@' and the number
	MOVB	R9, (R10)
	MOVD	$178, R8	// gettid
	SVC
	ADD	$128, R19, R11
	MOVD	$0, R9
find:
	MOVWU	(R11)(R9<<2), R12
	CMPW	R0, R12
	BEQ	found
	ADD	$1, R9
	CMP	$16, R9
	BNE	find
found:
	ADD	$64, R9	// '@' and the field
	MOVB	R9, 1(R10)
	MOVD	$2, R0	// SIG_SETMASK: an exec keeps the mask
	ADD	$48, R19, R1
	MOVD	$0, R2
	MOVD	$8, R3
	MOVD	$135, R8	// rt_sigprocmask
	SVC
	MOVD	$0, R0	// and the limits; with nothing to set this does nothing
	MOVD	$7, R1	// RLIMIT_NOFILE
	MOVD	192(R19), R2
	MOVD	$0, R3
	MOVD	$261, R8	// prlimit64
	SVC
	MOVD	24(R19), R0
	MOVD	32(R19), R1
	MOVD	40(R19), R2
	MOVD	$221, R8	// execve
	SVC
	MOVD	R20, R0
	MOVD	R21, R1
	MOVD	R22, R2
	B	other
park:
	MOVD	$0, R0	// ppoll of nothing, without an end
	MOVD	$0, R1
	MOVD	$0, R2
	MOVD	$0, R3
	MOVD	$73, R8
	SVC
	B	park
refuse:
	MOVD	88(R19), R9
	CBNZ	R9, leave
	MOVD	$2, R0
	MOVD	64(R19), R1
	MOVD	72(R19), R2
	MOVD	$64, R8	// write
	SVC
	MOVD	$125, R0
	MOVD	$94, R8	// exit_group
	SVC
	B	standard
leave:
	MOVD	$2, R0
	MOVD	200(R19), R1
	MOVD	208(R19), R2
	MOVD	$64, R8	// write
	SVC
	B	standard
