package visible

import (
	"slices"

	"gpuard/internal/core/option"
)

// Codes of notes. They are part of the JSON output: add, never rename.
const (
	codeEmpty        = "empty-list"
	codeIndex        = "invalid-index"
	codeNotNumber    = "not-a-number"
	codeUnknownUUID  = "unknown-uuid"
	codeAmbiguous    = "ambiguous-uuid"
	codeMixed        = "mixed-forms"
	codeDuplicate    = "duplicate"
	codeJunk         = "junk-ignored"
	codeRange        = "range"
	codeSeparator    = "separator"
	codeWord         = "container-word"
	codeQuotes       = "quotes"
	codeFirstSlice   = "mig-first-slice"
	codeOneSlice     = "mig-one-slice"
	codeNoSlice      = "mig-no-slice"
	codeFastest      = "fastest-first-guess"
	codeOrder        = "device-order-unknown"
	codeProblem      = "device-problem"
	codeLimit        = "entries-ignored"
	codeFiltered     = "filtered-twice"
	codeHIPCUDA      = "hip-reads-cuda"
	codeNoMask       = "no-mask"
	codeSkipped      = "entry-skipped"
	codeTile         = "tile-ignored"
	codeSelector     = "selector-invalid"
	codeProgramEnds  = "program-fails"
	codeOtherName    = "other-variable"
	codeTwice        = "variable-twice"
	codeUndocumented = "undocumented"
	codeSlurm        = "slurm-no-gpus"
	codeSlurmList    = "slurm-list"

	codeSlurmRelative  = "slurm-relative"
	codeMPS            = "mps-numbers"
	codeBeaten         = "variable-beaten"
	codeContainer      = "container"
	codeContainerFails = "container-fails"
	codeContainerOrder = "container-order"
	codeRenumbered     = "container-renumbered"
	codeTorch          = "pytorch-differs"
	codeTooLong        = "value-too-long"
	codeOrderTooLong   = "device-order-too-long"
	codeShowsAll       = "shows-all-gpus"
	codeWholeGPU       = "mig-reads-whole-gpu"
	codeWrapped        = "number-cut"
	codeOlderDriver    = "older-driver-differs"
	codeOlderROCm      = "older-rocm-differs"
	codeBase           = "number-base"
)

// Codes of notes that callers add: this package reads neither machines nor command lines.
const (
	CodeUnavailable     = "devices-unavailable"
	CodeUnknownVariable = "unknown-variable"
	CodeAtStart         = "environment-at-start"
	CodeNoVendor        = "no-such-vendor"
	CodeNotInside       = "container-variable"
	CodeDeviceFiles     = "container-device-files"
	CodeLeaseGone       = "lease-gone"
	CodeOutsideLease    = "outside-lease"
	CodeLeaseUnseen     = "lease-unseen"
	CodeLogin           = "login-rule"
	CodeIsolated        = "isolated"
)

// IsDoubtful reports whether the note makes the reading a guess: this machine's driver may read the variable
// differently.
func (n Note) IsDoubtful() bool {
	return slices.Contains([]string{
		codeUndocumented, codeFastest, codeFirstSlice, codeOneSlice, codeMPS, codeProblem, codeTwice, codeAmbiguous, codeSlurmList, codeOlderDriver,
	}, n.Code)
}

// Widens reports whether the value of CUDA_VISIBLE_DEVICES shows more devices than it names: other people's, too.
func (n Note) Widens() bool { return n.Code == codeTooLong || n.Code == codeShowsAll }

// IsMisread reports whether a list is not read as it was meant.
func (n Note) IsMisread() bool {
	return n.Widens() || slices.Contains([]string{
		codeIndex, codeNotNumber, codeUnknownUUID, codeAmbiguous, codeMixed, codeDuplicate, codeJunk, codeRange, codeSeparator, codeWord, codeQuotes, codeSkipped, codeTile,
		codeSelector, codeProgramEnds, codeTwice, codeSlurmList, codeWrapped, codeBase, codeWholeGPU, codeOlderDriver, codeUndocumented,
	}, n.Code)
}

// Codes lists every note code with its meaning, in a fixed order.
func Codes() []Note {
	return []Note{
		{codeEmpty, "the variable is set but empty or blank"},
		{codeIndex, "an entry is a number that no device has"},
		{codeNotNumber, "an entry is neither a number nor an identifier"},
		{codeUnknownUUID, "an identifier matches no device"},
		{codeAmbiguous, "an identifier matches several devices"},
		{codeMixed, "numbers and identifiers, or two kinds of identifiers, in one list"},
		{codeDuplicate, "a device is named twice"},
		{codeJunk, "characters after a number are ignored"},
		{codeRange, "ranges are not understood"},
		{codeSeparator, "entries are separated by something other than a comma"},
		{codeWord, "the word belongs to another variable"},
		{codeQuotes, "quotation marks are part of the value"},
		{codeFirstSlice, "a GPU that is split into MIG devices is seen as one of them"},
		{codeOneSlice, "a program sees one MIG device, the rest of the list is not seen"},
		{codeNoSlice, "a GPU in MIG mode without MIG devices cannot be used"},
		{codeFastest, "the order of different GPU models without CUDA_DEVICE_ORDER=PCI_BUS_ID is a guess"},
		{codeOrder, "the value of CUDA_DEVICE_ORDER keeps CUDA from starting"},
		{codeProblem, "a visible device cannot be used or read at present"},
		{codeLimit, "entries beyond the number of devices are not read"},
		{codeFiltered, "a second variable counts within the list of the first"},
		{codeHIPCUDA, "HIP obeys CUDA_VISIBLE_DEVICES when HIP_VISIBLE_DEVICES is not set"},
		{codeNoMask, "the value is empty or a word that means no restriction"},
		{codeSkipped, "an entry that names no device is skipped, the list continues"},
		{codeTile, "an entry of the form card.tile is ignored, because tiles are devices"},
		{codeSelector, "the selector cannot be parsed, so the program fails"},
		{codeProgramEnds, "the value makes the program fail"},
		{codeOtherName, "this version reads another variable"},
		{codeTwice, "the variable is in the environment twice; the first counts"},
		{codeUndocumented, "not documented: drivers may differ"},
		{codeSlurm, "the Slurm job has no GPU variables"}, {codeSlurmList, "the GPU list of the Slurm job cannot be applied"},
		{codeSlurmRelative, "the numbers of a Slurm job count within the GPUs that it was given"},
		{codeMPS, "with an MPS server, numbers count within what the server was given"},
		{codeBeaten, "a variable has no say, because another one wins"},
		{codeContainer, "what a container gets by a word or by nothing"},
		{codeContainerFails, "the value keeps the container from starting"},
		{codeContainerOrder, "the order of a container's list changes nothing"},
		{codeRenumbered, "inside a container, GPUs have other numbers than outside"},
		{codeTooLong, "the value is so long that the driver takes it for unset"},
		{codeOrderTooLong, "CUDA_DEVICE_ORDER is so long that the driver takes it for unset"},
		{codeShowsAll, "an identifier that names no MIG device makes every GPU visible"},
		{codeWholeGPU, "what looks like a MIG device is read as a whole GPU"},
		{codeWrapped, "a number that does not fit 32 bits is cut and means another GPU, or none"},
		{codeOlderDriver, "how this machine's driver reads the value is not known, and drivers differ"},
		{codeBase, "a number is read in base 8"}, {codeOlderROCm, "an older ROCm reads the value differently"},
		{codeTorch, "PyTorch's own reading of the variables differs from that of the runtime below it"},
		{CodeUnavailable, "no device can be read on this machine, with the reason"},
		{CodeUnknownVariable, "a variable on the command line chooses no devices for any runtime known here"},
		{CodeAtStart, "what is shown is the environment with which the process was started"},
		{CodeNoVendor, "the machine has no device that the runtime could show"},
		{CodeNotInside, "NVIDIA_VISIBLE_DEVICES is read by container runtimes, not by programs"},
		{CodeDeviceFiles, "the device files in the container say something else than NVIDIA_VISIBLE_DEVICES"},
		{CodeLeaseGone, "the lease that the process names is not alive"},
		{CodeOutsideLease, "the process sees a device that its lease does not hold"},
		{CodeLeaseUnseen, "the process does not see a device that its lease holds"},
		{CodeIsolated, "the process cannot open other GPUs than those of its lease, and counts these from 0"},
		{CodeLogin, option.Expand("the rule for logins without a lease hides devices, and {gpuard run} ignores it")},
	}
}
