package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prompt"
	"gpuard/internal/core/status"
	"gpuard/internal/host/dialog"
	"gpuard/internal/host/interrupt"
)

// Ask lets a person choose among the devices that could serve spec, and returns the spec with that choice. Nothing is
// leased by then: whatever is chosen may be taken before it is asked for.
func Ask(ctx context.Context, host *machine.Host, spec job.Spec) (job.Spec, error) {
	m, err := host.Read(ctx, claim.Needed(spec))
	if err != nil {
		return spec, err
	}
	q, err := choices(host, spec, m)
	if err != nil || len(q.Choices) == 0 { // why not is for the refusal to say
		return spec, err
	}
	answer, err := showQuestion(ctx, host, q)
	if errors.Is(err, dialog.ErrCancelled) {
		return spec, prompt.ErrCancelled
	}
	if err != nil {
		return spec, err
	}
	switch {
	case answer.None:
		return job.Spec{Command: spec.Command, CPU: true, IDs: spec.IDs, Time: spec.Time, Timeout: spec.Timeout, KeepWhile: spec.KeepWhile}, nil
	case len(answer.Devices) > 0:
		spec.Devices, spec.GPUs = answer.Devices, 0
	}
	return spec, nil
}

// choices lists the devices that could serve spec, some of them only later. What never can, or is hidden, is left out.
func choices(host *machine.Host, spec job.Spec, m gpu.Machine) (prompt.Question, error) {
	q := prompt.Question{Count: max(spec.GPUs, 1)}
	for i := range m.Devices {
		d := &m.Devices[i]
		label := strings.TrimPrefix(machine.DeviceName(m, *d), "GPU ")
		if len(d.MIG) == 0 {
			if err := consider(host, &q, spec, m, prompt.Choice{Label: label, Device: label, Model: d.Name, Free: unusedOf(d)}); err != nil {
				return q, err
			}
		}
		for j, s := range d.MIG {
			c := prompt.Choice{Label: fmt.Sprintf("%s.%d", label, j), Device: string(s.UUID), Model: d.Name + " " + s.Profile, Free: unused(s.MemoryTotal, s.MemoryUsed)}
			if err := consider(host, &q, spec, m, c); err != nil {
				return q, err
			}
		}
	}
	return q, nil
}

// consider adds the device to the choices, with the answer that a request for it would get.
func consider(host *machine.Host, q *prompt.Question, spec job.Spec, m gpu.Machine, c prompt.Choice) error {
	spec.Devices, spec.GPUs = []string{c.Device}, 0
	plan, refusal, err := claim.DecideOn(host, spec, m)
	if err != nil {
		return err
	}
	c.Use = "free"
	for _, g := range plan.Devices {
		if d, slice, ok := m.Find(g.UUID); ok && d.UseUnknown(slice) {
			c.Use = status.Unknown.Word()
		}
	}
	if refusal == nil && len(plan.Devices) > 0 {
		q.Choices = append(q.Choices, c)
		return nil
	}
	if refusal == nil || refusal.Never {
		return nil
	}
	c.Use = "not free"
	for _, r := range refusal.Reasons {
		if r.Verdict == job.Busy && r.Code != "not-named" {
			c.Use = r.Text
		}
	}
	q.Choices = append(q.Choices, c)
	return nil
}

// unusedOf is the memory that is free, "?" where the driver does not say.
func unusedOf(d *gpu.Device) string {
	if d.MainMemory != nil {
		return unused(d.MainAvailable, new(gpu.Bytes(0)))
	}
	return unused(d.MemoryTotal, d.MemoryUsed)
}

func unused(total, used *gpu.Bytes) string {
	if total == nil || used == nil {
		return "?"
	}
	return fmt.Sprintf("%.1f GiB", float64(*total-*used)/float64(gpu.GiB))
}

// showQuestion asks on the terminal, or where there is none in a window.
func showQuestion(ctx context.Context, host *machine.Host, q prompt.Question) (prompt.Answer, error) {
	t, err := dialog.OpenTerminal(host.Proc.Group)
	if err == nil {
		defer t.Close()
		return putOn(host, t, q)
	}
	if !desktop(host) {
		return prompt.Answer{}, exit.Usagef("cannot ask which GPU: there is no terminal (%v) and no desktop; name one, such as --device %s", err, q.Choices[0].Label)
	}
	w := dialog.Window{Title: "gpuard", Text: host.Translated(q.Text()), Columns: []string{"GPU", host.Translated("Model"), host.Translated("Free"), host.Translated("Use")}, Rows: q.Rows(host.Translated), Several: q.Count > 1}
	for {
		text, err := w.Show(ctx)
		if err != nil && !errors.Is(err, dialog.ErrCancelled) {
			return prompt.Answer{}, exit.Usagef("cannot ask which GPU: there is no terminal, and %v; name one, such as --device %s", err, q.Choices[0].Label)
		}
		if err != nil {
			return prompt.Answer{}, err
		}
		answer, err := q.Read(text)
		if err == nil {
			return answer, nil
		}
		w.Text = host.Translated(err.Error())
	}
}

// putOn asks until the answer is one. A signal finds the terminal as it was before.
func putOn(host *machine.Host, t *dialog.Terminal, q prompt.Question) (prompt.Answer, error) {
	caught := interrupt.Catch()
	defer caught.Stop()
	type line struct {
		text string
		err  error
	}
	lines := make(chan line, 1)
	read := func() {
		text, err := t.Read()
		lines <- line{text, err}
	}
	if err := t.Show(strings.Join(q.Table(t.Width(), host.Translated), "\n") + "\n" + host.Translated(q.Line())); err != nil {
		return prompt.Answer{}, err
	}
	go read()
	for {
		select {
		case sig := <-caught.Signals:
			if err := obey(t, sig); err != nil {
				return prompt.Answer{}, err
			}
		case l := <-lines:
			if l.err != nil {
				return prompt.Answer{}, l.err
			}
			answer, err := q.Read(l.text)
			if err == nil {
				return answer, nil
			}
			if err := t.Show(host.Translated(err.Error()) + "\n" + host.Translated(q.Line())); err != nil {
				return prompt.Answer{}, err
			}
			go read()
		}
	}
}

// obey does what a signal would have done, with the terminal as it was.
func obey(t *dialog.Terminal, sig os.Signal) error {
	switch sig {
	case syscall.SIGCONT:
		return t.Resume()
	case syscall.SIGTSTP:
		t.Suspend()
		interrupt.Suspend()
		return t.Resume()
	}
	t.Suspend()
	interrupt.Die(sig)
	return nil
}

// desktop reports whether there is one to show a window on.
func desktop(host *machine.Host) bool {
	x, _ := host.Env.Lookup("DISPLAY")
	wayland, _ := host.Env.Lookup("WAYLAND_DISPLAY")
	return x+wayland != ""
}

// Alert shows in a window why a program does not start, if there is a desktop. The text is on standard error in any
// case.
func Alert(ctx context.Context, host *machine.Host, text string) {
	if desktop(host) {
		_ = dialog.Alert(ctx, "gpuard", text)
	}
}
