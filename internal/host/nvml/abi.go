package nvml

// The layouts and numbers of NVIDIA's C interface that this package uses, from NVIDIA/go-nvml gen/nvml/nvml.h (NVML
// 13). abi_test.go compiles a C program against that header and compares every size, offset and number below.

// Buffer sizes, terminator included.
const (
	// NVML_DEVICE_UUID_V2_BUFFER_SIZE.
	uuidSize = 96
	// NVML_DEVICE_NAME_V2_BUFFER_SIZE.
	nameSize = 96
	// NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE, NVML_SYSTEM_NVML_VERSION_BUFFER_SIZE.
	versionSize = 80
)

// memory is nvmlMemory_t; used includes the memory that the driver reserves.
type memory struct {
	total, free, used uint64
}

// memoryV2 is nvmlMemory_v2_t; used does not include reserved.
type memoryV2 struct {
	version                     uint32
	total, reserved, free, used uint64
}

// pciInfo is nvmlPciInfo_t.
type pciInfo struct {
	legacy                [16]byte
	domain, bus, device   uint32
	deviceID, subsystemID uint32
	id                    [32]byte
}

// utilization is nvmlUtilization_t, in percent.
type utilization struct {
	gpu, memory uint32
}

// processInfo is nvmlProcessInfo_v2_t, which versions 2 and 3 of the process lists fill.
type processInfo struct {
	pid             uint32
	memory          uint64
	gpuInstance     uint32
	computeInstance uint32
}

// attributes is nvmlDeviceAttributes_t.
type attributes struct {
	multiprocessors, copyEngines, decoders, encoders, jpeg, ofa uint32
	gpuSlices, computeSlices                                    uint32
	memoryMiB                                                   uint64
}

// temperatureV1 is nvmlTemperature_v1_t.
type temperatureV1 struct {
	version, sensor uint32
	celsius         int32
}

// marginV1 is nvmlMarginTemperature_v1_t.
type marginV1 struct {
	version uint32
	celsius int32
}

// fieldValue is nvmlFieldValue_t; value is the union nvmlValue_t.
type fieldValue struct {
	id, scope          uint32
	timestamp, latency int64
	kind               uint32
	status             returnCode
	value              uint64
}

// fabricInfo is nvmlGpuFabricInfo_v2_t.
type fabricInfo struct {
	version uint32
	cluster [16]byte
	status  returnCode
	clique  uint32
	state   uint8
	mask    uint32
}

// eventData is nvmlEventData_t.
type eventData struct {
	device                       uintptr
	kind, data                   uint64
	gpuInstance, computeInstance uint32
}

// The version that a caller writes into a structure: its size, and its number from bit 24 (NVML_STRUCT_VERSION).
const (
	memoryV2Version      = 40 | 2<<24
	temperatureV1Version = 12 | 1<<24
	marginV1Version      = 8 | 1<<24
	fabricInfoV2Version  = 36 | 2<<24
)

// notAvailable is NVML_VALUE_NOT_AVAILABLE in a field of 64 bits.
const notAvailable = ^uint64(0)

// notAvailable32 is it in a field of 32 bits.
const notAvailable32 = 1<<32 - 1

// Arguments, from the enumerations of the header.
const (
	// NVML_TEMPERATURE_GPU.
	sensorGPU = 0
	// NVML_TEMPERATURE_THRESHOLD_SLOWDOWN.
	thresholdSlowdown = 1
	clockSM           = 1 // NVML_CLOCK_SM
	clockMemory       = 2 // NVML_CLOCK_MEM
	// NVML_MEMORY_ERROR_TYPE_CORRECTED.
	errorCorrected = 0
	// NVML_MEMORY_ERROR_TYPE_UNCORRECTED.
	errorUncorrected = 1
	countVolatile    = 0 // NVML_VOLATILE_ECC
	// NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS.
	retiredSingleBit = 0
	// NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR.
	retiredDoubleBit = 1
	// NVML_FI_DEV_GET_GPU_RECOVERY_ACTION.
	fieldRecovery = 230
	// NVML_AFFINITY_SCOPE_NODE.
	affinityNode = 0
	// NVML_NVLINK_MAX_LINKS.
	linkMax = 36
	// nvmlEventTypeXidCriticalError.
	eventXID = 8
	// NVML_NVLINK_DEVICE_TYPE_SWITCH.
	linkToSwitch = 2
	// NVML_GPU_FABRIC_STATE_COMPLETED.
	fabricCompleted = 3
)

// Kinds of a fieldValue that hold 32 bits; the others are read as 64.
const (
	// NVML_VALUE_TYPE_UNSIGNED_INT.
	kindUint32 = 1
	// NVML_VALUE_TYPE_SIGNED_INT.
	kindInt32 = 5
)
