package nvml

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"gpuard/internal/gate"
	"gpuard/test/fakegpu"
)

// fact is a C expression and the value that this package assumes.
type fact struct {
	c    string
	want uint64
}

func sizes() []fact {
	return []fact{
		{"sizeof(nvmlMemory_t)", uint64(unsafe.Sizeof(memory{}))},
		{"sizeof(nvmlMemory_v2_t)", uint64(unsafe.Sizeof(memoryV2{}))},
		{"sizeof(nvmlPciInfo_t)", uint64(unsafe.Sizeof(pciInfo{}))},
		{"sizeof(nvmlUtilization_t)", uint64(unsafe.Sizeof(utilization{}))},
		{"sizeof(nvmlProcessInfo_t)", uint64(unsafe.Sizeof(processInfo{}))},
		{"sizeof(nvmlProcessInfo_v2_t)", uint64(unsafe.Sizeof(processInfo{}))},
		{"sizeof(nvmlDeviceAttributes_t)", uint64(unsafe.Sizeof(attributes{}))},
		{"sizeof(nvmlTemperature_v1_t)", uint64(unsafe.Sizeof(temperatureV1{}))},
		{"sizeof(nvmlMarginTemperature_v1_t)", uint64(unsafe.Sizeof(marginV1{}))},
		{"sizeof(nvmlFieldValue_t)", uint64(unsafe.Sizeof(fieldValue{}))},
		{"sizeof(nvmlEventData_t)", uint64(unsafe.Sizeof(eventData{}))},
		{"sizeof(nvmlValue_t)", uint64(unsafe.Sizeof(fieldValue{}.value))},
		{"sizeof(nvmlReturn_t)", uint64(unsafe.Sizeof(success))},
		{"sizeof(nvmlEnableState_t)", 4},
		{"sizeof(nvmlComputeMode_t)", 4},
		{"sizeof(nvmlGpuTopologyLevel_t)", 4},
		{"sizeof(nvmlIntNvLinkDeviceType_t)", 4},
		{"sizeof(unsigned long)", 8},
		{"sizeof(nvmlDevice_t)", uint64(unsafe.Sizeof(uintptr(0)))},
	}
}

func offsets() []fact {
	at := func(t, field string, want uintptr) fact {
		return fact{fmt.Sprintf("offsetof(%s, %s)", t, field), uint64(want)}
	}
	return []fact{
		at("nvmlMemory_t", "total", unsafe.Offsetof(memory{}.total)),
		at("nvmlMemory_t", "free", unsafe.Offsetof(memory{}.free)),
		at("nvmlMemory_t", "used", unsafe.Offsetof(memory{}.used)),
		at("nvmlMemory_v2_t", "version", unsafe.Offsetof(memoryV2{}.version)),
		at("nvmlMemory_v2_t", "total", unsafe.Offsetof(memoryV2{}.total)),
		at("nvmlMemory_v2_t", "reserved", unsafe.Offsetof(memoryV2{}.reserved)),
		at("nvmlMemory_v2_t", "free", unsafe.Offsetof(memoryV2{}.free)),
		at("nvmlMemory_v2_t", "used", unsafe.Offsetof(memoryV2{}.used)),
		at("nvmlPciInfo_t", "domain", unsafe.Offsetof(pciInfo{}.domain)),
		at("nvmlPciInfo_t", "bus", unsafe.Offsetof(pciInfo{}.bus)),
		at("nvmlPciInfo_t", "device", unsafe.Offsetof(pciInfo{}.device)),
		at("nvmlPciInfo_t", "pciDeviceId", unsafe.Offsetof(pciInfo{}.deviceID)),
		at("nvmlPciInfo_t", "pciSubSystemId", unsafe.Offsetof(pciInfo{}.subsystemID)),
		at("nvmlPciInfo_t", "busId", unsafe.Offsetof(pciInfo{}.id)),
		at("nvmlUtilization_t", "gpu", unsafe.Offsetof(utilization{}.gpu)),
		at("nvmlUtilization_t", "memory", unsafe.Offsetof(utilization{}.memory)),
		at("nvmlProcessInfo_t", "pid", unsafe.Offsetof(processInfo{}.pid)),
		at("nvmlProcessInfo_t", "usedGpuMemory", unsafe.Offsetof(processInfo{}.memory)),
		at("nvmlProcessInfo_t", "gpuInstanceId", unsafe.Offsetof(processInfo{}.gpuInstance)),
		at("nvmlProcessInfo_t", "computeInstanceId", unsafe.Offsetof(processInfo{}.computeInstance)),
		at("nvmlDeviceAttributes_t", "gpuInstanceSliceCount", unsafe.Offsetof(attributes{}.gpuSlices)),
		at("nvmlDeviceAttributes_t", "computeInstanceSliceCount", unsafe.Offsetof(attributes{}.computeSlices)),
		at("nvmlDeviceAttributes_t", "memorySizeMB", unsafe.Offsetof(attributes{}.memoryMiB)),
		at("nvmlTemperature_v1_t", "sensorType", unsafe.Offsetof(temperatureV1{}.sensor)),
		at("nvmlTemperature_v1_t", "temperature", unsafe.Offsetof(temperatureV1{}.celsius)),
		at("nvmlMarginTemperature_v1_t", "marginTemperature", unsafe.Offsetof(marginV1{}.celsius)),
		at("nvmlFieldValue_t", "fieldId", unsafe.Offsetof(fieldValue{}.id)),
		at("nvmlFieldValue_t", "scopeId", unsafe.Offsetof(fieldValue{}.scope)),
		at("nvmlFieldValue_t", "timestamp", unsafe.Offsetof(fieldValue{}.timestamp)),
		at("nvmlFieldValue_t", "latencyUsec", unsafe.Offsetof(fieldValue{}.latency)),
		at("nvmlFieldValue_t", "valueType", unsafe.Offsetof(fieldValue{}.kind)),
		at("nvmlFieldValue_t", "nvmlReturn", unsafe.Offsetof(fieldValue{}.status)),
		at("nvmlGpuFabricInfo_v2_t", "status", unsafe.Offsetof(fabricInfo{}.status)),
		at("nvmlGpuFabricInfo_v2_t", "state", unsafe.Offsetof(fabricInfo{}.state)),
		at("nvmlGpuFabricInfo_v2_t", "healthMask", unsafe.Offsetof(fabricInfo{}.mask)),
		at("nvmlEventData_t", "device", unsafe.Offsetof(eventData{}.device)),
		at("nvmlEventData_t", "eventType", unsafe.Offsetof(eventData{}.kind)),
		at("nvmlEventData_t", "eventData", unsafe.Offsetof(eventData{}.data)),
		at("nvmlEventData_t", "gpuInstanceId", unsafe.Offsetof(eventData{}.gpuInstance)),
		at("nvmlEventData_t", "computeInstanceId", unsafe.Offsetof(eventData{}.computeInstance)),
		at("nvmlFieldValue_t", "value", unsafe.Offsetof(fieldValue{}.value)),
	}
}

func numbers() []fact {
	return []fact{
		{"NVML_DEVICE_UUID_V2_BUFFER_SIZE", uuidSize},
		{"NVML_DEVICE_NAME_V2_BUFFER_SIZE", nameSize},
		{"NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE", versionSize},
		{"NVML_SYSTEM_NVML_VERSION_BUFFER_SIZE", versionSize},
		{"nvmlMemory_v2", memoryV2Version},
		{"nvmlTemperature_v1", temperatureV1Version},
		{"nvmlMarginTemperature_v1", marginV1Version},
		{"nvmlGpuFabricInfo_v2", fabricInfoV2Version},
		{"NVML_GPU_FABRIC_STATE_COMPLETED", fabricCompleted},
		{"(unsigned long long)NVML_VALUE_NOT_AVAILABLE", notAvailable},
		{"(unsigned int)NVML_VALUE_NOT_AVAILABLE", notAvailable32},
		{"NVML_TEMPERATURE_GPU", sensorGPU},
		{"NVML_TEMPERATURE_THRESHOLD_SLOWDOWN", thresholdSlowdown},
		{"NVML_CLOCK_SM", clockSM},
		{"NVML_CLOCK_MEM", clockMemory},
		{"NVML_MEMORY_ERROR_TYPE_CORRECTED", errorCorrected},
		{"NVML_MEMORY_ERROR_TYPE_UNCORRECTED", errorUncorrected},
		{"NVML_VOLATILE_ECC", countVolatile},
		{"NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS", retiredSingleBit},
		{"NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR", retiredDoubleBit},
		{"NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", fieldRecovery},
		{"NVML_AFFINITY_SCOPE_NODE", affinityNode},
		{"nvmlEventTypeXidCriticalError", eventXID},
		{"NVML_NVLINK_MAX_LINKS", linkMax},
		{"NVML_NVLINK_DEVICE_TYPE_SWITCH", linkToSwitch},
		{"NVML_VALUE_TYPE_UNSIGNED_INT", kindUint32},
		{"NVML_VALUE_TYPE_SIGNED_INT", kindInt32},
		{"NVML_FEATURE_DISABLED", 0},
		{"NVML_FEATURE_ENABLED", 1},
		{"NVML_DEVICE_MIG_DISABLE", 0},
		{"NVML_DEVICE_MIG_ENABLE", 1},
		{"NVML_SUCCESS", uint64(success)},
		{"NVML_ERROR_UNINITIALIZED", uint64(uninitialized)},
		{"NVML_ERROR_INVALID_ARGUMENT", uint64(invalidArgument)},
		{"NVML_ERROR_NOT_SUPPORTED", uint64(notSupported)},
		{"NVML_ERROR_NO_PERMISSION", uint64(noPermission)},
		{"NVML_ERROR_TIMEOUT", uint64(timedOut)},
		{"NVML_ERROR_NOT_FOUND", uint64(notFound)},
		{"NVML_ERROR_INSUFFICIENT_SIZE", uint64(insufficientSize)},
		{"NVML_ERROR_DRIVER_NOT_LOADED", uint64(driverNotLoaded)},
		{"NVML_ERROR_LIBRARY_NOT_FOUND", uint64(libraryNotFound)},
		{"NVML_ERROR_FUNCTION_NOT_FOUND", uint64(functionNotFound)},
		{"NVML_ERROR_GPU_IS_LOST", uint64(gpuIsLost)},
		{"NVML_ERROR_RESET_REQUIRED", uint64(resetRequired)},
		{"NVML_ERROR_OPERATING_SYSTEM", uint64(operatingSystem)},
		{"NVML_ERROR_LIB_RM_VERSION_MISMATCH", uint64(versionMismatch)},
		{"NVML_ERROR_NO_DATA", uint64(noData)},
		{"NVML_ERROR_ARGUMENT_VERSION_MISMATCH", uint64(argumentVersion)},
		{"NVML_ERROR_DEPRECATED", uint64(deprecated)},
		{"NVML_ERROR_GPU_NOT_FOUND", uint64(gpuNotFound)},
		{"NVML_ERROR_UNKNOWN", uint64(unknown)},
	}
}

// Names that are used by position: as bits, or as indexes in a list of names.
func TestWordsStandWhereTheHeaderHasThem(t *testing.T) {
	events := []string{"GpuIdle", "ApplicationsClocksSetting", "SwPowerCap", "", "SyncBoost", "SwThermalSlowdown", "", "", "DisplayClockSetting"}
	var facts []fact
	for i, name := range events {
		if name != "" {
			facts = append(facts, fact{"nvmlClocksEventReason" + name, 1 << i})
		}
	}
	facts = append(facts,
		fact{"nvmlClocksThrottleReasonHwSlowdown", 1 << 3},
		fact{"nvmlClocksThrottleReasonHwThermalSlowdown", 1 << 6},
		fact{"nvmlClocksThrottleReasonHwPowerBrakeSlowdown", 1 << 7},
		fact{"NVML_COMPUTEMODE_DEFAULT", 0}, fact{"NVML_COMPUTEMODE_EXCLUSIVE_THREAD", 1},
		fact{"NVML_COMPUTEMODE_PROHIBITED", 2}, fact{"NVML_COMPUTEMODE_EXCLUSIVE_PROCESS", 3},
		fact{"NVML_GPU_RECOVERY_ACTION_NONE", 0}, fact{"NVML_GPU_RECOVERY_ACTION_GPU_RESET", 1},
		fact{"NVML_GPU_RECOVERY_ACTION_NODE_REBOOT", 2}, fact{"NVML_GPU_RECOVERY_ACTION_DRAIN_P2P", 3},
		fact{"NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET", 4}, fact{"NVML_GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN", 5},
		fact{"NVML_TOPOLOGY_INTERNAL", 0}, fact{"NVML_TOPOLOGY_SINGLE", 10}, fact{"NVML_TOPOLOGY_MULTIPLE", 20},
		fact{"NVML_TOPOLOGY_HOSTBRIDGE", 30}, fact{"NVML_TOPOLOGY_NODE", 40}, fact{"NVML_TOPOLOGY_SYSTEM", 50})
	compareWithHeader(t, facts)
}

func TestLayoutsAreThoseOfTheHeader(t *testing.T) {
	compareWithHeader(t, append(append(sizes(), offsets()...), numbers()...))
}

// compareWithHeader compiles one program that prints every expression, and compares line by line.
func compareWithHeader(t *testing.T, facts []fact) {
	t.Helper()
	gate.Need(t, "cc")
	var source strings.Builder
	source.WriteString("#include <stddef.h>\n#include <stdio.h>\n#include <nvml.h>\nint main(void) {\n")
	for _, f := range facts {
		fmt.Fprintf(&source, "printf(\"%%llu\\n\", (unsigned long long)(%s));\n", f.c)
	}
	source.WriteString("return 0;\n}\n")
	folder := t.TempDir()
	file, program := filepath.Join(folder, "facts.c"), filepath.Join(folder, "facts")
	if err := os.WriteFile(file, []byte(source.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-I", fakegpu.Header(t), "-o", program, file).CombinedOutput(); err != nil {
		t.Fatalf("cannot compile against nvml.h: %v\n%s", err, out)
	}
	out, err := exec.Command(program).Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(out))
	if len(lines) != len(facts) {
		t.Fatalf("%d lines for %d facts", len(lines), len(facts))
	}
	for i, f := range facts {
		if lines[i] != fmt.Sprint(f.want) {
			t.Errorf("%s is %s in nvml.h, here %d", f.c, lines[i], f.want)
		}
	}
}
