package run

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/container"
	"gpuard/internal/core/job"
	"gpuard/internal/core/visible"
)

// composeRequest is the request of a compose up or run: as many GPUs as the services that it starts ask for, in one
// lease.
func (c *containerCommand) composeRequest(ctx context.Context, host *machine.Host, spec job.Spec) (_ *containerCommand, _ job.Spec, err error) {
	switch {
	case c.call.Engine != "docker":
		return nil, spec, exit.Usagef("cannot lease for %s compose: gpuard reads projects of docker compose; start single containers by gpuard %s -- run …", c.call.Engine, c.call.Engine)
	case spec.CPU || spec.MIG != "":
		return nil, spec, exit.Usagef("cannot use --cpu or --mig with docker compose: what a service gets is in the project's files; leave it out")
	}

	c.facts, err = c.engine.Facts(ctx, host)
	if err != nil {
		return nil, spec, err
	}
	if c.facts.Engine != "docker" {
		return nil, spec, exit.Usagef("cannot lease for docker compose with podman as the engine; start single containers by gpuard podman -- run …")
	}

	project, err := c.readProject(ctx)
	if err != nil {
		return nil, spec, err
	}

	// What the options of a run name is judged also where no service has GPUs.
	if err := c.call.CheckStart(); err != nil {
		return nil, spec, &exit.Usage{Text: err.Error()}
	}

	c.services, err = c.call.LeasingServices(project)
	if err != nil {
		return nil, spec, &exit.Usage{Text: err.Error()}
	}

	err = c.skipRunningServices(ctx, project)
	if err != nil {
		return nil, spec, &exit.Usage{Text: err.Error()}
	}

	n := 0
	for _, s := range c.services {
		n += s.GPUs
	}

	switch {
	case n == 0:
		return nil, spec, nil
	case spec.Devices == nil && spec.GPUs != 1 && spec.GPUs != n, spec.Devices != nil && len(spec.Devices) != n:
		return nil, spec, exit.Usagef("cannot lease another number of GPUs than the services ask for, which is %d; leave --gpus out", n)
	case spec.Devices == nil:
		spec.GPUs = n
	}

	if spec.Name == "" {
		spec.Name = project.Name
	}

	return c, spec, nil
}

// readProject reads the project, with what its variables stand for, and looks up what its services and options name.
func (c *containerCommand) readProject(ctx context.Context) (container.Project, error) {
	project, err := c.engine.Project(ctx, c.call.Compose, "--no-interpolate")
	if err != nil {
		return project, err
	}

	filled, err := c.engine.Project(ctx, c.call.Compose)
	if err != nil {
		return project, err
	}

	project = project.WithVariables(filled)
	found, err := c.engine.LookUp(ctx, project.NeededLookups().Join(c.call.NeededLookups()), c.facts.Rootless)
	c.call = c.call.WithFound(found)

	return project.WithFound(found), err
}

// skipRunningServices leaves out services that run and are left alone, and refuses to start others again: Compose would
// replace their containers, and between the old and the new one the lease would be free.
func (c *containerCommand) skipRunningServices(ctx context.Context, project container.Project) error {
	found, err := c.engine.WithLabel(ctx, "com.docker.compose.project", project.Name)
	if err != nil {
		return fmt.Errorf("cannot ask docker about the containers of %s: %w", project.Name, err)
	}

	left := c.call.Verb == "compose up" && c.call.HasOption("--no-recreate")
	for _, one := range found {
		name := one.Config.Labels["com.docker.compose.service"]
		i := slices.IndexFunc(c.services, func(s container.Service) bool { return s.Name == name })
		switch {
		case i < 0 || one.Config.Labels["com.docker.compose.oneoff"] == "True" || c.call.Verb == "compose run" && i == c.runServiceIndex():
		case one.IsAlive() && left:
			c.services = slices.Delete(c.services, i, i+1)
		case one.IsAlive():
			return fmt.Errorf("cannot start service %s: it runs already, and would be replaced; end it first (docker compose stop %s), or leave it as it is (--no-recreate)", name, name)
		case left:
			return fmt.Errorf("cannot start service %s with --no-recreate: its container has GPUs of an earlier lease; remove it first: docker compose rm %s", name, name)
		}
	}

	return nil
}

// runServiceIndex is the place of the service that a compose run names.
func (c *containerCommand) runServiceIndex() int {
	return slices.IndexFunc(c.services, func(s container.Service) bool { return slices.Contains(c.call.Containers()[:1], s.Name) })
}

// makeComposeCommand tells docker compose the devices by variables, which the project's file of gpuard reads.
func (l *Launch) makeComposeCommand(form container.Form) error {
	c := l.contained
	values, err := container.ServiceVariables(form, l.Lease, c.services)
	if err != nil {
		return &exit.Usage{Text: err.Error()}
	}

	l.argv = l.spec.Command
	if c.call.Verb == "compose run" {
		form.Words = nil
		argv, notes, err := c.call.With(form)
		if err != nil {
			return &exit.Usage{Text: err.Error()}
		}
		l.argv, l.Plan.Notes = argv, append(l.Plan.Notes, notes...)
	}

	var vars []visible.Var
	for _, value := range values {
		name, text, _ := strings.Cut(value, "=")
		vars = append(vars, visible.Var{Name: name, Value: text})
	}

	l.env = l.engineEnv().With(vars)
	l.Plan.Notes = append(l.Plan.Notes, c.serviceGPUNotes(l.Plan)...)

	return nil
}

// serviceGPUNotes says which service has which GPUs, where there are several.
func (c *containerCommand) serviceGPUNotes(plan job.Plan) (notes []string) {
	given := plan.Devices
	for _, s := range c.services {
		if len(c.services) > 1 && len(given) >= s.GPUs {
			var numbers []string
			for _, d := range given[:s.GPUs] {
				numbers = append(numbers, fmt.Sprint(d.Index))
			}
			notes = append(notes, fmt.Sprintf("service %s has GPU %s", s.Name, strings.Join(numbers, ", ")))
			given = given[s.GPUs:]
		}
	}
	return notes
}
