package nvml

import (
	"unsafe"

	"gpuard/internal/core/gpu"
)

// health reads error counters and modes. Each is absent on some generation of devices.
func (r *reader) health() {
	d := &r.device
	if current, _, ok := r.pair("nvmlDeviceGetEccMode"); ok {
		d.ECC = new(current != 0)
	}
	d.ECCCorrected = r.eccErrors(errorCorrected)
	d.ECCUncorrected = r.eccErrors(errorUncorrected)
	d.RemappedRows = r.remappedRows()
	d.RetiredPages = r.retiredPages()
	d.RecoveryAction = r.recoveryAction()
	d.Persistence = r.flag("nvmlDeviceGetPersistenceMode")
	if mode := r.number("nvmlDeviceGetComputeMode"); mode != nil {
		d.ComputeMode = word([]string{"default", "exclusive_thread", "prohibited", "exclusive_process"}, *mode)
	}
}

// word is the name of an enumeration's value; a value that this version does not know is shown, not taken for absent.
func word(names []string, value int) string {
	if value >= 0 && value < len(names) {
		return names[value]
	}
	return "unknown"
}

func (r *reader) eccErrors(kind uintptr) *int64 {
	const name = "nvmlDeviceGetTotalEccErrors"
	var count uint64
	if r.gone() || !r.ok(name, r.lib.call(name, r.handle, kind, countVolatile, uintptr(unsafe.Pointer(&count)))) {
		return nil
	}
	return new(int64(count))
}

func (r *reader) remappedRows() *gpu.RemappedRows {
	const name = "nvmlDeviceGetRemappedRows"
	var v [4]uint32
	if r.gone() || !r.ok(name, r.lib.call(name, r.handle, uintptr(unsafe.Pointer(&v[0])), uintptr(unsafe.Pointer(&v[1])),
		uintptr(unsafe.Pointer(&v[2])), uintptr(unsafe.Pointer(&v[3])))) {
		return nil
	}
	return &gpu.RemappedRows{Correctable: int(v[0]), Uncorrectable: int(v[1]), Pending: v[2] != 0, Failed: v[3] != 0}
}

// retiredPages counts without fetching the addresses: with no room for any, the driver answers with the number.
func (r *reader) retiredPages() *gpu.RetiredPages {
	const name = "nvmlDeviceGetRetiredPages"
	count := func(cause uintptr) (int, bool) {
		var n uint32
		if r.gone() {
			return 0, false
		}
		s := r.lib.call(name, r.handle, cause, uintptr(unsafe.Pointer(&n)), 0)
		return int(n), s == insufficientSize || r.ok(name, s)
	}
	single, ok := count(retiredSingleBit)
	if !ok {
		return nil
	}
	double, ok := count(retiredDoubleBit)
	if !ok {
		return nil
	}
	pending := r.flag("nvmlDeviceGetRetiredPagesPendingStatus")
	return &gpu.RetiredPages{SingleBit: single, DoubleBit: double, Pending: pending != nil && *pending}
}

// recoveryAction is what the driver wants done with the device (nvmlDeviceGpuRecoveryAction_t), "" when it does not say.
func (r *reader) recoveryAction() string {
	const name = "nvmlDeviceGetFieldValues"
	field := fieldValue{id: fieldRecovery}
	if r.gone() || !r.ok(name, r.lib.call(name, r.handle, 1, uintptr(unsafe.Pointer(&field)))) || !r.ok(name, field.status) {
		return ""
	}
	return word([]string{"none", "reset", "reboot", "drain_p2p", "drain_and_reset", "recover_imex_domain"}, int(field.number()))
}

// number reads the union by its kind; every kind that is asked for is a whole number.
func (f *fieldValue) number() uint64 {
	if f.kind == kindUint32 || f.kind == kindInt32 {
		return uint64(*(*uint32)(unsafe.Pointer(&f.value)))
	}
	return f.value
}
