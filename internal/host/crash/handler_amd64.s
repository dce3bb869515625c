#include "textflag.h"

GLOBL frame<>(SB), NOPTR, $8

// func setFrame(address uintptr)
TEXT ·setFrame(SB),NOSPLIT,$0-8
	MOVQ	address+0(FP), AX
	MOVQ	AX, frame<>(SB)
	RET

// func handlerAddress() uintptr
TEXT ·handlerAddress(SB),NOSPLIT,$0-8
	LEAQ	handler<>(SB), AX
	MOVQ	AX, ret+0(FP)
	RET

// handler is a handler of sigaction(2) with SA_SIGINFO: signal DI, siginfo SI, ucontext DX. It runs wherever the thread is,
// so it touches no memory but the frame. What is not the crash of a library goes on as if it were not there. The registers
// R12 to R15 and BX are free: rt_sigreturn(2) restores all.
TEXT handler<>(SB),NOSPLIT|NOFRAME,$0
	MOVQ	frame<>(SB), R12
	MOVQ	168(DX), R13	// uc_mcontext.gregs[REG_RIP]
	MOVL	8(SI), R14	// si_code
	CMPL	R14, $0	// positive from the kernel, for a fault
	JGT	where
	CMPL	R14, $-6	// SI_TKILL: abort(3) and raise(3) send it to their own thread
	JNE	other
where:
	CMPQ	R13, 8(R12)
	JCS	outside
	CMPQ	R13, 16(R12)
	JCC	outside
other:
	CMPL	DI, $6	// SIGABRT
	JEQ	standard
	MOVQ	0(R12), AX
	JMP	AX
standard:	// as without a handler: the default action, and the signal again, which is blocked until we return
	MOVL	$6, DI
	LEAQ	96(R12), SI
	XORL	DX, DX
	MOVL	$8, R10
	MOVL	$13, AX	// rt_sigaction
	SYSCALL
	MOVL	$39, AX	// getpid
	SYSCALL
	MOVL	AX, DI
	MOVL	$6, SI
	MOVL	$62, AX	// kill
	SYSCALL
	RET
outside:
	CMPQ	80(R12), $0
	JNE	again
	CMPL	DI, $6
	JEQ	refuse
again:
	CMPQ	88(R12), $0
	JNE	park
	CMPQ	24(R12), $0
	JEQ	other
	MOVQ	DI, R13
	MOVQ	SI, R14
	MOVQ	DX, R15
	CMPQ	216(R12), $0
	JEQ	note
	MOVQ	80(R12), AX
	LEAQ	-1(AX), CX
	TESTQ	AX, CX	// not zero with two calls and more
	JEQ	note
	MOVL	$2, DI
	MOVQ	224(R12), SI
	MOVQ	232(R12), DX
	MOVL	$1, AX	// write
	SYSCALL
	MOVQ	R13, DI
note:
	MOVQ	56(R12), BX
	LEAL	64(DI), AX	// '@' and the number
	MOVB	AX, (BX)
	MOVL	$186, AX	// gettid
	SYSCALL
	XORL	CX, CX
find:
	CMPL	AX, 128(R12)(CX*4)
	JEQ	found
	INCL	CX
	CMPL	CX, $16
	JNE	find
found:
	ADDL	$64, CX	// '@' and the field
	MOVB	CX, 1(BX)
	MOVL	$2, DI	// SIG_SETMASK: an exec keeps the mask
	LEAQ	48(R12), SI
	XORL	DX, DX
	MOVL	$8, R10
	MOVL	$14, AX	// rt_sigprocmask
	SYSCALL
	XORL	DI, DI	// and the limits; with nothing to set this does nothing
	MOVL	$7, SI	// RLIMIT_NOFILE
	MOVQ	192(R12), DX
	XORL	R10, R10
	MOVL	$302, AX	// prlimit64
	SYSCALL
	MOVQ	24(R12), DI
	MOVQ	32(R12), SI
	MOVQ	40(R12), DX
	MOVL	$59, AX	// execve
	SYSCALL
	MOVQ	R13, DI
	MOVQ	R14, SI
	MOVQ	R15, DX
	JMP	other
park:
	MOVL	$34, AX	// pause
	SYSCALL
	JMP	park
refuse:
	CMPQ	88(R12), $0
	JNE	leave
	MOVL	$2, DI
	MOVQ	64(R12), SI
	MOVQ	72(R12), DX
	MOVL	$1, AX	// write
	SYSCALL
	MOVL	$125, DI
	MOVL	$231, AX	// exit_group
	SYSCALL
	JMP	standard
leave:
	MOVL	$2, DI
	MOVQ	200(R12), SI
	MOVQ	208(R12), DX
	MOVL	$1, AX	// write
	SYSCALL
	JMP	standard
