package check

// environmentChecks look at the caller's variables and at what its processes may use beside GPUs.
func environmentChecks() []Check {
	return []Check{
		maskHidesAll(), maskEmpty(), maskList(), misspeltMask(), containerMask(), deviceOrder(),
		oldNames(), debugNames(), jaxFractions(), jaxValues(), ncclFiles(),
		cpuThreads(), sharedMemory(), lockedMemory(),
	}
}
