package explain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/visible"
	"gpuard/internal/gate"
	"gpuard/internal/host/libcuda"
	"gpuard/test/fakegpu"
	"gpuard/test/hardware"
	"gpuard/test/recorded"
)

// TestMain makes this test binary the program that a probe starts.
func TestMain(m *testing.M) {
	gate.Driver = hardware.CheckGPUs
	if len(os.Args) > 1 && os.Args[1] == libcuda.ProbeFlag {
		if err := ServeProbe(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			unix.Exit(1)
		}
		// At os.Exit the race detector pauses for a second, unless GORACE says otherwise, which a child like this is not given.
		unix.Exit(0)
	}
	os.Exit(m.Run())
}

// probing is an App on the machine m, with the fake's libcuda and no other variables.
func probing(m gpu.Machine, d *fakegpu.Driver, env ...string) *machine.Host {
	return &machine.Host{
		Readers:  machine.Readers{Reader: func(context.Context, gpu.Query) (gpu.Machine, error) { return m, nil }},
		Env:      append(visible.Env(env), d.Env()...),
		Messages: machine.Messages{Say: func(string) {}},
	}
}

// TestExplainAgreesWithTheTable asks the fake libcuda, which knows no rules, for every row of the tables.
func TestExplainAgreesWithTheTable(t *testing.T) {
	const most = 400 // of a recorded table of thousands; the rest is read without a child in core/visible
	for _, table := range recorded.ListTables(t, "../core/visible/testdata") {
		rows := recorded.ReadTable(t, table)
		asks := make(chan recorded.Row)
		drivers := map[string]*fakegpu.Driver{}
		for _, group := range byMachine(rows[:min(len(rows), most)]) {
			d := fakegpu.New(t)
			d.SetCUDATable(group.answers()...)
			drivers[machine.Fingerprint(group[0].Machine)] = d
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for r := range asks {
					host := probing(r.Machine, drivers[machine.Fingerprint(r.Machine)], r.Env()...)
					_, _, p, err := RunProbe(t.Context(), host, nil)
					if err != nil || !p.Agrees || p.Code != r.Code {
						t.Errorf("%s: %q: code %d, differences %q, %v", r.At, r.Env(), p.Code, p.Differences, err)
					}
				}
			})
		}
		for _, r := range rows[:min(len(rows), most)] {
			asks <- r
		}
		close(asks)
		wg.Wait()
	}
}

type group []recorded.Row

func (g group) answers() []fakegpu.Answer {
	out := make([]fakegpu.Answer, len(g))
	for i, r := range g {
		out[i] = r.Answer()
	}
	return out
}

// byMachine: a fake driver is one machine.
func byMachine(rows []recorded.Row) []group {
	at := map[string]int{}
	var out []group
	for _, r := range rows {
		key := machine.Fingerprint(r.Machine)
		if _, known := at[key]; !known {
			at[key] = len(out)
			out = append(out, nil)
		}
		out[at[key]] = append(out[at[key]], r)
	}
	return out
}

func demo(t *testing.T, spec string) gpu.Machine {
	t.Helper()
	m, err := gpu.InventMachine(spec)
	if err != nil {
		t.Fatal(err)
	}
	m.Driver = "550.54.15"
	return m
}

func seen(m gpu.Machine, i int) fakegpu.Seen {
	return fakegpu.Seen{UUID: string(m.Devices[i].UUID), PCI: m.Devices[i].PCI}
}

func TestProbeReportsADifference(t *testing.T) {
	m := demo(t, "demo:3xA100-80GB")
	id := func(i int) string { return string(m.Devices[i].UUID) }
	at := func(i int) string { return id(i) + " at " + m.Devices[i].PCI }
	elsewhere := seen(m, 1)
	elsewhere.PCI = "0000:ff:00.0"
	for _, c := range []struct {
		name   string
		driver fakegpu.Answer
		want   []string
	}{
		{"the same", fakegpu.Answer{Devices: []fakegpu.Seen{seen(m, 2), seen(m, 1)}}, []string{}},
		{"another order", fakegpu.Answer{Devices: []fakegpu.Seen{seen(m, 1), seen(m, 2)}},
			[]string{"cuda:0 is " + at(2) + " for gpuard and " + at(1) + " for the driver", "cuda:1 is " + at(1) + " for gpuard and " + at(2) + " for the driver"}},
		{"one more", fakegpu.Answer{Devices: []fakegpu.Seen{seen(m, 2), seen(m, 1), seen(m, 0)}},
			[]string{"cuda:2 is no device for gpuard and " + at(0) + " for the driver"}},
		{"one less", fakegpu.Answer{Devices: []fakegpu.Seen{seen(m, 2)}},
			[]string{"cuda:1 is " + at(1) + " for gpuard and no device for the driver"}},
		{"none", fakegpu.Answer{Code: 100},
			[]string{"cuda:0 is " + at(2) + " for gpuard and no device for the driver", "cuda:1 is " + at(1) + " for gpuard and no device for the driver"}},
		{"another address", fakegpu.Answer{Devices: []fakegpu.Seen{seen(m, 2), elsewhere}},
			[]string{"cuda:1 is " + at(1) + " for gpuard and " + id(1) + " at 0000:ff:00.0 for the driver"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := fakegpu.New(t)
			c.driver.Visible = new("2,1")
			d.SetCUDATable(c.driver)
			host := probing(m, d, "CUDA_VISIBLE_DEVICES=0", "CUDA_DEVICE_ORDER=PCI_BUS_ID", "SECRET=x", "HIP_VISIBLE_DEVICES=0")
			view, _, p, err := RunProbe(t.Context(), host, []string{"CUDA_VISIBLE_DEVICES=2,1"})
			if err != nil || len(view.Visible) != 2 || p.Code != c.driver.Code {
				t.Fatalf("view %+v, code %d, %v", view, p.Code, err)
			}
			if !reflect.DeepEqual(p.Differences, c.want) || p.Agrees != (len(c.want) == 0) {
				t.Errorf("agrees %v, differences %q\nwant %q", p.Agrees, p.Differences, c.want)
			}
			if len(p.Variables) != 2 || p.Variables[0] != "CUDA_VISIBLE_DEVICES=2,1" || !strings.HasPrefix(p.Variables[1], "LD_LIBRARY_PATH=") {
				t.Errorf("the variables of the report are %q", p.Variables)
			}
			if p.Driver != "550.54.15" || p.CUDA != "12.4" || !strings.HasSuffix(p.Library, "/libcuda.so.1") || len(p.GPUs) != 3 || p.GPUs[2].UUID != m.Devices[2].UUID {
				t.Errorf("the report lacks something: %+v", p)
			}
		})
	}
}

func TestProbeKnowsMIGDevices(t *testing.T) {
	m := demo(t, "demo:1xA100-80GB:1g.10gb*2")
	slice := m.Devices[0].MIG[1]
	d := fakegpu.New(t)
	d.SetCUDATable(fakegpu.Answer{Visible: new(string(slice.UUID)), Devices: []fakegpu.Seen{{UUID: string(slice.UUID), PCI: m.Devices[0].PCI, Parent: string(m.Devices[0].UUID)}}})
	given := []string{"CUDA_VISIBLE_DEVICES=" + string(slice.UUID)}
	_, _, p, err := RunProbe(t.Context(), probing(m, d), given)
	if err != nil || !p.Agrees || p.Parents || p.Devices[0].UUID != slice.UUID || len(p.GPUs[0].MIG) != 2 {
		t.Errorf("%+v, %v", p, err)
	}
	d.HideSymbols("cuDeviceGetUuid_v2")
	if _, _, p, err = RunProbe(t.Context(), probing(m, d), given); err != nil || !p.Agrees || !p.Parents || p.Devices[0].UUID != m.Devices[0].UUID {
		t.Errorf("a library that names the GPU only: %+v, %v", p, err)
	}
	d.SetCUDATable(fakegpu.Answer{Visible: new(string(slice.UUID)), Devices: []fakegpu.Seen{seen(m, 0)}})
	d.HideSymbols()
	if _, _, p, err = RunProbe(t.Context(), probing(m, d), given); err != nil || p.Agrees {
		t.Errorf("the whole GPU in the place of a slice is no difference: %+v, %v", p, err)
	}
}

func TestProbeWithoutAUUID(t *testing.T) {
	m := demo(t, "demo:2xA100-80GB")
	d := fakegpu.New(t)
	d.SetCUDATable(fakegpu.Answer{Devices: []fakegpu.Seen{seen(m, 0), seen(m, 1)}}, fakegpu.Answer{Visible: new("0"), Devices: []fakegpu.Seen{seen(m, 1)}})
	d.Fail("cuDeviceGetUuid", fakegpu.AnyGPU, 999)
	d.Fail("cuDeviceGetUuid_v2", fakegpu.AnyGPU, 999)
	if _, _, p, err := RunProbe(t.Context(), probing(m, d), nil); err != nil || !p.Agrees || p.Devices[0].UUID != "" {
		t.Errorf("two devices with the right addresses: %+v, %v", p, err)
	}
	if _, _, p, err := RunProbe(t.Context(), probing(m, d), []string{"CUDA_VISIBLE_DEVICES=0"}); err != nil || p.Agrees {
		t.Errorf("another address: %+v, %v", p, err)
	}
}

func TestProbeIsOneJSONObject(t *testing.T) {
	d := fakegpu.New(t)
	d.SetCUDATable(fakegpu.Answer{Visible: new("-1"), Code: 100})
	_, _, p, err := RunProbe(t.Context(), probing(gpu.Machine{}, d, "CUDA_VISIBLE_DEVICES=-1"), nil)
	p.Library, p.Variables = "", p.Variables[:1]
	data, jsonErr := json.Marshal(p)
	want := `{"devices":[],"code":100,"word":"CUDA_ERROR_NO_DEVICE","cuda":"12.4","library":"","parents":false,"agrees":true,"differences":[],` +
		`"variables":["CUDA_VISIBLE_DEVICES=-1"],"driver":"","gpus":[]}`
	if err != nil || jsonErr != nil || string(data) != want {
		t.Errorf("got %s, %v, %v", data, err, jsonErr)
	}
}

func TestProbeThatCannotAsk(t *testing.T) {
	m := demo(t, "demo")
	d := fakegpu.New(t)
	d.SetCUDATable(fakegpu.Answer{})

	var usage *exit.Usage
	invented := probing(m, d)
	invented.Machine = "demo"
	if _, _, _, err := RunProbe(t.Context(), invented, nil); !errors.As(err, &usage) || !strings.Contains(err.Error(), "--machine") {
		t.Errorf("an invented machine: %v", err)
	}
	host := probing(m, d)
	host.Times.Probe = 200 * time.Millisecond
	d.Hang("cuInit", fakegpu.AnyGPU)
	begin := time.Now()
	var why *gpu.Unavailable
	if _, _, _, err := RunProbe(t.Context(), host, nil); !errors.As(err, &why) || why.Cause != gpu.NoAnswer || exit.Remedy(err) == "" {
		t.Errorf("a driver that hangs: %v", err)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("a driver that hangs held us for %v", took)
	}
	d.Answer()
	gate.Need(t, "no nvidia libraries")
	d.RemoveFile("lib/libcuda.so.1")
	if _, _, _, err := RunProbe(t.Context(), probing(m, d), nil); !errors.As(err, &why) || why.Cause != gpu.LibraryMissing || exit.Remedy(err) == "" {
		t.Errorf("no library: %v", err)
	}
}
