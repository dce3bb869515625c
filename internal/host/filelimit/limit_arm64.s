#include "textflag.h"

// func getLimit(limit *[2]uint64)
TEXT ·getLimit(SB),NOSPLIT,$0-8
	MOVD	$0, R0
	MOVD	$7, R1	// RLIMIT_NOFILE
	MOVD	$0, R2
	MOVD	limit+0(FP), R3
	MOVD	$261, R8	// prlimit64
	SVC
	RET
