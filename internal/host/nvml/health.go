package nvml

import (
	"unsafe"

	"gpuard/internal/core/gpu"
)

// readFaults reads for what a device is not used. None of it exists on every generation of devices: pages are retired
// where no rows are remapped (docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt), so that who decides needs one of the
// two.
func (r *deviceReader) readFaults(what gpu.What) {
	d := &r.device
	d.ECCUncorrected = r.readECCErrors(errorUncorrected)
	d.RemappedRows = r.readRemappedRows()
	if what&gpu.Deciding == 0 || d.RemappedRows == nil {
		d.RetiredPages = r.readRetiredPages()
	}

	d.RecoveryAction = r.readRecoveryAction()
	if d.Compute != nil && d.Compute.Major >= firstWithFabric {
		d.Fabric = r.readFabric()
	}

	if mode := r.readNumber("nvmlDeviceGetComputeMode"); mode != nil {
		d.ComputeMode = enumName([]string{"default", "exclusive_thread", "prohibited", "exclusive_process"}, *mode)
	}
}

// firstWithFabric is the compute capability from which on the driver tells the health of the NVLink fabric: Hopper.
const firstWithFabric = 9

// readFabric decodes the mask of what may be wrong with the fabric (NVML_GPU_FABRIC_HEALTH_MASK_*): in two bits 0 is
// not supported, 1 true and 2 false. A recovery that runs is no fault, and a fabric that is not set up yet is not
// judged: doctor looks at its manager.
func (r *deviceReader) readFabric() []string {
	const name = "nvmlDeviceGetGpuFabricInfoV"
	info := fabricInfo{version: fabricInfoV2Version}
	if r.isLost() || !r.recordResult(name, r.lib.callDriver(name, r.handle, uintptr(unsafe.Pointer(&info)))) || info.state != fabricCompleted {
		return nil
	}

	wrong := []string{}
	for _, w := range []struct {
		word string
		is   bool
	}{
		{"probe_failed", info.status != success},
		{"degraded_bandwidth", info.mask&3 == 1},
		{"route_unhealthy", info.mask>>4&3 == 1},
		{"incorrect_configuration", info.mask>>8&15 >= 2}, // 1 is none
	} {
		if w.is {
			wrong = append(wrong, w.word)
		}
	}

	return wrong
}

func (r *deviceReader) readModes() {
	d := &r.device
	if current, _, ok := r.readPair("nvmlDeviceGetEccMode"); ok {
		d.ECC = boolFromState(current)
	}
	d.ECCCorrected = r.readECCErrors(errorCorrected)
	d.Persistence = r.readFlag("nvmlDeviceGetPersistenceMode")
}

// enumName returns the name of an enumeration's value, "unknown" for a value that is newer than this list.
func enumName(names []string, value int) string {
	if value >= 0 && value < len(names) {
		return names[value]
	}
	return "unknown"
}

func (r *deviceReader) readECCErrors(kind uintptr) *int64 {
	const name = "nvmlDeviceGetTotalEccErrors"
	var count uint64
	if r.isLost() || !r.recordResult(name, r.lib.callDriver(name, r.handle, kind, countVolatile, uintptr(unsafe.Pointer(&count)))) {
		return nil
	}

	return new(int64(count))
}

func (r *deviceReader) readRemappedRows() *gpu.RemappedRows {
	const name = "nvmlDeviceGetRemappedRows"
	var v [4]uint32
	if r.isLost() || !r.recordResult(name, r.lib.callDriver(name, r.handle, uintptr(unsafe.Pointer(&v[0])), uintptr(unsafe.Pointer(&v[1])),
		uintptr(unsafe.Pointer(&v[2])), uintptr(unsafe.Pointer(&v[3])))) {
		return nil
	}

	pending, failed := boolFromState(v[2]), boolFromState(v[3])
	if pending == nil || failed == nil || v[0] == notAvailable32 || v[1] == notAvailable32 {
		return nil
	}

	return &gpu.RemappedRows{Correctable: int(v[0]), Uncorrectable: int(v[1]), Pending: *pending, Failed: *failed}
}

// readRetiredPages counts pages without their addresses: with a buffer of size 0, the driver returns the number.
func (r *deviceReader) readRetiredPages() *gpu.RetiredPages {
	const name = "nvmlDeviceGetRetiredPages"
	count := func(cause uintptr) (int, bool) {
		var n uint32
		if r.isLost() {
			return 0, false
		}
		s := r.lib.callDriver(name, r.handle, cause, uintptr(unsafe.Pointer(&n)), 0)

		return int(n), s == insufficientSize || r.recordResult(name, s)
	}

	single, ok := count(retiredSingleBit)
	if !ok {
		return nil
	}

	double, ok := count(retiredDoubleBit)
	if !ok {
		return nil
	}

	pending := r.readFlag("nvmlDeviceGetRetiredPagesPendingStatus")

	return &gpu.RetiredPages{SingleBit: single, DoubleBit: double, Pending: pending != nil && *pending}
}

// readRecoveryAction returns the action that the driver recommends (nvmlDeviceGpuRecoveryAction_t), "" if it reports
// none.
func (r *deviceReader) readRecoveryAction() string {
	const name = "nvmlDeviceGetFieldValues"
	field := fieldValue{id: fieldRecovery}
	if r.isLost() || !r.recordResult(name, r.lib.callDriver(name, r.handle, 1, uintptr(unsafe.Pointer(&field)))) || !r.recordResult(name, field.status) {
		return ""
	}
	if value := field.wholeValue(); value == notAvailable || value == notAvailable32 {
		return ""
	}

	return enumName([]string{"none", "reset", "reboot", "drain_p2p", "drain_and_reset", "recover_imex_domain"}, int(field.wholeValue()))
}

// wholeValue reads the union by its kind; all fields that are read here are whole numbers.
func (f *fieldValue) wholeValue() uint64 {
	if f.kind == kindUint32 || f.kind == kindInt32 {
		return uint64(*(*uint32)(unsafe.Pointer(&f.value)))
	}
	return f.value
}
