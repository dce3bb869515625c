package amdgpu

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/test/apart"
)

func TestMain(m *testing.M) {
	apart.UseMemoryFolder()
	apart.SetParallelTests(8)
	os.Exit(m.Run())
}

// block makes a read of the file hang, as a broken GPU does, until the test or the returned function ends it.
func block(t *testing.T, root, name string) (release func()) {
	t.Helper()
	remove(t, root, name)
	path := filepath.Join(root, name)
	if err := unix.Mkfifo(path, 0o644); err != nil {
		t.Fatal(err)
	}
	release = func() {
		if fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK, 0); err == nil { // lets the reader's open return,
			_ = unix.Unlink(path)
			_ = unix.Close(fd) // and this its read
		}
	}
	t.Cleanup(release)
	return release
}

const first = "sys/devices/pci0000:00/0000:00:01.1/0000:02:00.0/0000:03:00.0/0000:05:00.0/"

func TestAHangingDeviceHidesNoOther(t *testing.T) {
	t.Parallel()
	tests := []struct{ file, load string }{
		{first + "product_name", "used - busy - at - of - margin -, - of - W, - and - MHz"},
		{first + "gpu_busy_percent", "used 57 GiB busy - at - of - margin -, - of - W, - and - MHz"},
		{first + "ras/umc_err_count", "used 57 GiB busy 0.99 at 80 of 100 margin 20, 702 of 750 W, 2103 and 1300 MHz"},
	}
	for _, tt := range tests {
		t.Run(filepath.Base(tt.file), func(t *testing.T) {
			t.Parallel()
			root := tree(t, "mi300x")
			release := block(t, root, tt.file)
			d := New(root, WithDeadline(time.Second))
			for attempt := range 2 { // the second time the goroutine of the first still hangs
				m, err := d.Read(t.Context(), gpu.Everything)
				if err != nil {
					t.Fatal(err)
				}
				same(t, "problems", lines(m.Problems, itself), "\nAMD GPU 0: no answer within 1s")
				same(t, "its problem", m.Devices[0].Problem, "no answer within 1s")
				if attempt == 0 {
					same(t, "what it gave before", load(m.Devices[0]), tt.load)
				}
				same(t, "its identity", m.Devices[0].UUID, "GPU-a1b2c3d4e5f60718")
				same(t, "the other's temperature", show(m.Devices[1].Temperature), "77")
				same(t, "the other's links", m.Devices[1].Links, "[nvlink self nvlink]")
				same(t, "processes", len(m.Processes), 2)
			}
			m, err := d.Read(t.Context(), gpu.Identity)
			same(t, "error", err, nil)
			same(t, "one goroutine at most", m.Devices[0].Problem, "no answer within 1s")
			release()
			deadline := time.Now().Add(10 * time.Second)
			for m.Devices[0].Problem != "" {
				if time.Now().After(deadline) {
					t.Fatal("it answers again and is not believed")
				}
				if m, err = d.Read(t.Context(), gpu.Identity); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestAHangOutsideTheDevices(t *testing.T) {
	t.Parallel()
	root := tree(t, "mi300x")
	block(t, root, "sys/class/kfd/kfd/proc/41207/vram_4021")
	m, err := New(root, WithDeadline(time.Second)).Read(t.Context(), gpu.Everything)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "problems", lines(m.Problems, itself), "\nAMD GPUs: cannot list the processes: no answer within 1s")
	same(t, "the device", load(m.Devices[2]), "used 283 MiB busy 0 at 31 of 100 margin 69, 138 of 750 W, 132 and 900 MHz")

}

func TestAHangInTheListOfDevices(t *testing.T) {
	t.Parallel()
	root := tree(t, "mi300x")
	block(t, root, "sys/class/kfd/kfd/topology/nodes/2/properties")
	_, err := New(root, WithDeadline(time.Second)).Read(t.Context(), gpu.Everything)
	var why *gpu.Unavailable
	if !errors.As(err, &why) || why.Cause != gpu.NoAnswer {
		t.Errorf("the list of devices hangs: %v", err)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	root := tree(t, "mi300x")
	block(t, root, first+"gpu_busy_percent")
	if _, err := New(root).Read(ctx, gpu.Everything); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
