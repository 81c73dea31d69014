#include "textflag.h"

// func Line(at uintptr)
TEXT ·Line(SB), NOSPLIT, $0-8
	MOVQ at+0(FP), AX
	PREFETCHT0 (AX)
	RET
