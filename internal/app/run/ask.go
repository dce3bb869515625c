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

// AskForDevice lets a person choose among the devices that could serve spec, and returns the spec with that choice.
// Nothing is leased by then: whatever is chosen may be taken before it is asked for.
func AskForDevice(ctx context.Context, host *machine.Host, spec job.Spec) (job.Spec, error) {
	m, err := host.Read(ctx, claim.WhatToRead(spec))
	if err != nil {
		return spec, err
	}

	q, err := deviceChoices(host, spec, m)
	if err != nil || len(q.Choices) == 0 {
		// Why not is for the refusal to say.
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

// deviceChoices lists the devices that could serve spec, some of them only later. What never can, or is hidden, is left
// out.
func deviceChoices(host *machine.Host, spec job.Spec, m gpu.Machine) (prompt.Question, error) {
	q := prompt.Question{Count: max(spec.GPUs, 1)}
	for i := range m.Devices {
		d := &m.Devices[i]
		label := strings.TrimPrefix(machine.DeviceName(m, *d), "GPU ")
		if len(d.MIG) == 0 {
			if err := addChoice(host, &q, spec, m, prompt.Choice{Label: label, Device: label, Model: d.Name, Free: freeMemoryText(d)}); err != nil {
				return q, err
			}
		}

		for j, s := range d.MIG {
			c := prompt.Choice{Label: fmt.Sprintf("%s.%d", label, j), Device: string(s.UUID), Model: d.Name + " " + s.Profile, Free: unusedText(s.MemoryTotal, s.MemoryUsed)}
			if err := addChoice(host, &q, spec, m, c); err != nil {
				return q, err
			}
		}
	}
	return q, nil
}

// addChoice adds the device to the choices, with the answer that a request for it would get.
func addChoice(host *machine.Host, q *prompt.Question, spec job.Spec, m gpu.Machine, c prompt.Choice) error {
	spec.Devices, spec.GPUs = []string{c.Device}, 0
	plan, refusal, err := claim.DecideOn(host, spec, m)
	if err != nil {
		return err
	}

	c.Use = "free"

	for _, g := range plan.Devices {
		if d, slice, ok := m.FindDevice(g.UUID); ok && d.UseUnknown(slice) {
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

// freeMemoryText is the memory that is free, "?" where the driver does not say.
func freeMemoryText(d *gpu.Device) string {
	if d.MainMemory != nil {
		return unusedText(d.MainAvailable, new(gpu.Bytes(0)))
	}
	return unusedText(d.MemoryTotal, d.MemoryUsed)
}

func unusedText(total, used *gpu.Bytes) string {
	if total == nil || used == nil {
		return "?"
	}
	return fmt.Sprintf("%.1f GiB", float64(*total-*used)/float64(gpu.GiB))
}

// showQuestion asks on the terminal, or where there is none in a window.
func showQuestion(ctx context.Context, host *machine.Host, q prompt.Question) (prompt.Answer, error) {
	t, err := dialog.OpenTerminal(host.Proc.IsGroupAlive)
	if err == nil {
		defer t.Close()
		return askOnTerminal(host, t, q)
	}

	if !hasDesktop(host) {
		return prompt.Answer{}, exit.Usagef("cannot ask which GPU: there is no terminal (%v) and no desktop; name one, such as --device %s", err, q.Choices[0].Label)
	}

	w := dialog.Window{Title: "gpuard", Text: host.Localize(q.Text()), Columns: []string{"GPU", host.Localize("Model"), host.Localize("Free"), host.Localize("Use")}, Rows: q.Rows(host.Localize), Several: q.Count > 1}
	for {
		text, err := w.AskChoice(ctx)
		if err != nil && !errors.Is(err, dialog.ErrCancelled) {
			return prompt.Answer{}, exit.Usagef("cannot ask which GPU: there is no terminal, and %v; name one, such as --device %s", err, q.Choices[0].Label)
		}
		if err != nil {
			return prompt.Answer{}, err
		}

		answer, err := q.ParseAnswer(text)
		if err == nil {
			return answer, nil
		}

		w.Text = host.Localize(err.Error())
	}
}

// askOnTerminal asks until the answer is one. A signal finds the terminal as it was before.
func askOnTerminal(host *machine.Host, t *dialog.Terminal, q prompt.Question) (prompt.Answer, error) {
	caught := interrupt.CatchSignals()
	defer caught.Stop()
	type line struct {
		text string
		err  error
	}

	lines := make(chan line, 1)
	read := func() {
		text, err := t.ReadLine()
		lines <- line{text, err}
	}

	if err := t.WriteText(strings.Join(q.TableLines(t.Width(), host.Localize), "\n") + "\n" + host.Localize(q.Line())); err != nil {
		return prompt.Answer{}, err
	}

	go read()

	for {
		select {
		case sig := <-caught.Signals:
			if err := obeySignal(t, sig); err != nil {
				return prompt.Answer{}, err
			}
		case l := <-lines:
			if l.err != nil {
				return prompt.Answer{}, l.err
			}

			answer, err := q.ParseAnswer(l.text)
			if err == nil {
				return answer, nil
			}
			if err := t.WriteText(host.Localize(err.Error()) + "\n" + host.Localize(q.Line())); err != nil {
				return prompt.Answer{}, err
			}

			go read()
		}
	}
}

// obeySignal does what a signal would have done, with the terminal as it was.
func obeySignal(t *dialog.Terminal, sig os.Signal) error {
	switch sig {
	case syscall.SIGCONT:
		return t.EnableLineMode()
	case syscall.SIGTSTP:
		t.RestoreMode()
		interrupt.Suspend()
		return t.EnableLineMode()
	}
	t.RestoreMode()
	interrupt.DieBySignal(sig)

	return nil
}

// hasDesktop reports whether there is one to show a window on.
func hasDesktop(host *machine.Host) bool {
	x, _ := host.Env.Lookup("DISPLAY")
	wayland, _ := host.Env.Lookup("WAYLAND_DISPLAY")
	return x+wayland != ""
}

// AlertOnDesktop shows in a window why a program does not start, if there is a desktop. The text is on standard error
// in any case.
func AlertOnDesktop(ctx context.Context, host *machine.Host, text string) {
	if hasDesktop(host) {
		_ = dialog.ShowAlert(ctx, "gpuard", text)
	}
}
