package machine

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
)

// answering is a reader that always says the same.
func answering(m gpu.Machine, err error) Reader {
	return func(context.Context, gpu.Query) (gpu.Machine, error) { return m, err }
}

// devices makes a machine of n devices of one vendor, all linked.
func devices(v gpu.Vendor, source, driver string, taken int, n int) gpu.Machine {
	m := gpu.Machine{Taken: time.Unix(int64(taken), 0), Driver: driver, Source: source}
	for i := range n {
		links := make([]gpu.Link, n)
		for j := range links {
			links[j] = gpu.LinkNVLink
		}
		links[i] = gpu.LinkSelf
		id := gpu.UUID(fmt.Sprintf("%s-%d", v, i))
		m.Devices = append(m.Devices, gpu.Device{Index: i, Vendor: v, UUID: id, Name: "a GPU", PCI: "0000:01:00.0", Links: links})
		m.Processes = append(m.Processes, gpu.Process{PID: 100 + i, GPU: id})
	}
	return m
}

func TestBothJoins(t *testing.T) {
	nvidia, amd := devices(gpu.NVIDIA, "nvml", "580.95.05", 20, 2), devices(gpu.AMD, "amdgpu", "6.12.12", 10, 2)
	nvidia.CUDA, nvidia.Problems, amd.Problems = "13.0", []string{"one"}, []string{"two"}
	m, err := JoinVendors(answering(nvidia, nil), answering(amd, nil), nil)(t.Context(), gpu.Query{What: gpu.Everything})
	if err != nil {
		t.Fatal(err)
	}
	want := [][]gpu.Link{
		{"self", "nvlink", "", ""}, {"nvlink", "self", "", ""},
		{"", "", "self", "nvlink"}, {"", "", "nvlink", "self"},
	}
	for i, d := range m.Devices {
		place := []string{"nvidia-0", "nvidia-1", "amd-0", "amd-1"}[i]
		if string(d.UUID) != place || d.Index != i%2 || !reflect.DeepEqual(d.Links, want[i]) {
			t.Errorf("device %d is %s, index %d, links %q; want %s, %d, %q", i, d.UUID, d.Index, d.Links, place, i%2, want[i])
		}
	}
	got := fmt.Sprint(m.Driver, "|", m.CUDA, "|", m.Source, "|", m.Taken.Unix(), "|", len(m.Processes), "|", m.Problems)
	if want := "580.95.05, amdgpu 6.12.12|13.0|nvml+amdgpu|10|4|[one two]"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if len(nvidia.Devices[0].Links) != 2 {
		t.Error("what a reader gave was changed")
	}
	file, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gpu.DecodeMachine(file); err != nil {
		t.Errorf("it cannot be recorded and read back: %v", err)
	}
}

func TestBothWithOneVendor(t *testing.T) {
	because := func(c gpu.Cause) error {
		return &gpu.Unavailable{Cause: c, Text: "cannot " + string(c), Remedy: "mend it"}
	}
	nvidia, amd := devices(gpu.NVIDIA, "nvml", "580", 1, 1), devices(gpu.AMD, "amdgpu", "6.12", 1, 1)
	sick := devices(gpu.AMD, "amdgpu", "6.12", 1, 1)
	sick.Devices[0].Problem = "for graphics only"
	tests := []struct {
		name       string
		nvidia     vendorAnswer
		amd        vendorAnswer
		devices    int
		problem    string
		wantsError string
	}{
		{"only NVIDIA", vendorAnswer{m: nvidia}, vendorAnswer{err: because(gpu.NoDevice)}, 1, "", ""},
		{"only AMD, no NVIDIA library", vendorAnswer{err: because(gpu.LibraryMissing)}, vendorAnswer{m: amd}, 1, "", ""},
		{"only AMD, NVIDIA driver without a device", vendorAnswer{err: because(gpu.NoDevice)}, vendorAnswer{m: amd}, 1, "", ""},
		{"the AMD driver is not loaded", vendorAnswer{m: nvidia}, vendorAnswer{err: because(gpu.DriverNotLoaded)}, 1, "AMD GPUs: cannot driver-not-loaded; mend it", ""},
		{"the NVIDIA driver is broken", vendorAnswer{err: because(gpu.VersionMismatch)}, vendorAnswer{m: amd}, 1, "NVIDIA GPUs: cannot version-mismatch; mend it", ""},
		{"NVIDIA hangs", vendorAnswer{err: because(gpu.NoAnswer)}, vendorAnswer{m: amd}, 1, "NVIDIA GPUs: cannot no-answer; mend it", ""},
		{"the AMD device does not work", vendorAnswer{err: because(gpu.LibraryMissing)}, vendorAnswer{m: sick}, 1, "NVIDIA GPUs: cannot library-missing; mend it", ""},
		{"neither is here", vendorAnswer{err: because(gpu.LibraryMissing)}, vendorAnswer{err: because(gpu.NoDevice)}, 0, "", "cannot library-missing"},
		{"no card", vendorAnswer{err: because(gpu.LibraryMissing)}, vendorAnswer{err: because(gpu.NoDevice)}, 0, "", "this machine has none of NVIDIA or AMD"},
		{"neither is loaded", vendorAnswer{err: because(gpu.DriverNotLoaded)}, vendorAnswer{err: because(gpu.NoDevice)}, 0, "", "cannot driver-not-loaded"},
		{"no card, NVIDIA's libraries", vendorAnswer{err: because(gpu.DriverNotLoaded)}, vendorAnswer{err: because(gpu.NoDevice)}, 0, "", "this machine has none of NVIDIA or AMD"},
		{"AMD fails, NVIDIA is not here", vendorAnswer{err: because(gpu.LibraryMissing)}, vendorAnswer{err: because(gpu.NoPermission)}, 0, "", "cannot no-permission"},
		{"NVIDIA fails, AMD is not here", vendorAnswer{err: because(gpu.VersionMismatch)}, vendorAnswer{err: because(gpu.NoDevice)}, 0, "", "cannot version-mismatch"},
		{"both fail", vendorAnswer{err: because(gpu.VersionMismatch)}, vendorAnswer{err: because(gpu.NoPermission)}, 0, "", "cannot version-mismatch"},
		{"cancelled", vendorAnswer{m: nvidia}, vendorAnswer{err: context.Canceled}, 0, "", "canceled"},
		{"cancelled on the other side", vendorAnswer{err: context.Canceled}, vendorAnswer{m: amd}, 0, "", "canceled"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := JoinVendors(answering(tt.nvidia.m, tt.nvidia.err), answering(tt.amd.m, tt.amd.err), func() bool { return strings.HasPrefix(tt.name, "no card") })(t.Context(), gpu.Query{What: gpu.Identity})
			if len(m.Devices) != tt.devices || strings.Join(m.Problems, "\n") != tt.problem {
				t.Errorf("%d devices, problems %q; want %d and %q", len(m.Devices), m.Problems, tt.devices, tt.problem)
			}
			if (err != nil) != (tt.wantsError != "") || err != nil && !strings.Contains(err.Error(), tt.wantsError) {
				t.Errorf("error %v, want %q", err, tt.wantsError)
			}
		})
	}
}

// Each reader waits until the other has begun: one after the other they would wait for ever.
func TestBothReadAtTheSameTime(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	met := make(chan bool)
	meet := func(ctx context.Context, _ gpu.Query) (gpu.Machine, error) {
		select {
		case met <- true:
		case <-met:
		case <-ctx.Done():
			return gpu.Machine{}, errors.New("alone")
		}
		return devices(gpu.AMD, "x", "", 1, 1), nil
	}
	if _, err := JoinVendors(meet, meet, nil)(ctx, gpu.Query{What: gpu.Identity}); err != nil {
		t.Error(err)
	}
}
