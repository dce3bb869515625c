package nvml

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/test/fakegpu"
)

// beListener prints the events of devices, one per line, and a last line when the channel is closed.
func beListener(ids []string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l, err := Open(ctx, WithDeadline(5*time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	var devices []gpu.UUID
	for _, id := range ids {
		devices = append(devices, gpu.UUID(id))
	}
	for e := range l.Events(ctx, devices) {
		fmt.Println(e.Device, e.XID.Code, e.XID.Source, time.Since(e.XID.At) < time.Minute)
	}
	fmt.Println("nobody listens")
}

// TestEvents: the errors of each device are sent as they happen, whatever the other devices do, until the caller ends
// ctx.
func TestEvents(t *testing.T) {
	d := fakegpu.New(t, fakegpu.A100(0), fakegpu.A100(1), fakegpu.A100(2))
	id := func(i int) string { return fmt.Sprintf("GPU-fa4e0000-0000-4000-8000-%012x", i) }
	cmd := childCommand(t, append(d.Env(), childListens+"="+id(0)+","+id(1)+","+id(2)+",GPU-of-nobody"), 0, 0)
	d.Hang("nvmlDeviceRegisterEvents", 2)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	lines := make(chan string, 1000)
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
		close(lines)
	}()
	// A listener does not report that it is ready, so errors are repeated until one arrives.
	for i, code := range []int{79, 13} {
		want := fmt.Sprintf("%s %d nvml true", id(i), code)
		heard := false
		for end := time.Now().Add(20 * time.Second); !heard && time.Now().Before(end); {
			d.XID(i, code)
			select {
			case line := <-lines:
				heard = line == want
			case <-time.After(20 * time.Millisecond):
			}
		}
		if !heard {
			t.Fatalf("not heard: %s", want)
		}
	}
	d.Answer()
	_ = in.Close()
	last := ""
	for line := range lines {
		last = line
	}
	same(t, "at the end", last, "nobody listens")
}

// TestEventsEnd: a listener ends at an error of the driver, and does not retry.
func TestEventsEnd(t *testing.T) {
	for _, function := range []string{"nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2"} {
		d := fakegpu.New(t, fakegpu.A100(0))
		d.Fail(function, fakegpu.AnyGPU, 15) // NVML_ERROR_GPU_IS_LOST
		cmd := childCommand(t, append(d.Env(), childListens+"=GPU-fa4e0000-0000-4000-8000-000000000000"), 0, 0)
		in, err := cmd.StdinPipe() // stays open, so it must end by itself
		if err != nil {
			t.Fatal(err)
		}
		late := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		out, err := cmd.Output()
		late.Stop()
		_ = in.Close()
		same(t, function, []any{string(out), err}, []any{"nobody listens\n", nil})
	}
}
