package services

import (
	"fmt"
	"slices"

	"gpuard/internal/app/exit"
	"gpuard/internal/core/service"
	"gpuard/internal/core/suggest"
)

// Instance is the one instance of a service, filled in, wherever it is to run. A service with several has none such,
// and only its name, folder and image are known.
func (s *Projects) Instance(p *service.Project, name string) (service.Service, service.Instance, error) {
	at := slices.IndexFunc(p.Services, func(s service.Service) bool { return s.Name == name })
	if at < 0 {
		text := fmt.Sprintf("cannot find service %q in %s; it has %s", name, p.File, serviceList(p))
		if meant := suggest.ClosestWord(name, serviceNames(p)); meant != "" {
			text += "; did you mean " + meant + "?"
		}
		return service.Service{}, service.Instance{}, &exit.Usage{Text: text}
	}

	one := p.Services[at]
	if one.Each || one.Replicas > 1 {
		return one, service.Instance{Name: name, Service: name, WorkDir: one.WorkDir, Image: one.Image}, nil
	}

	alone := *p
	alone.Services = p.Services[at : at+1]
	files, err := readEnvFiles(&alone)
	if err != nil {
		return one, service.Instance{}, err
	}

	list, _, err := service.Expand(&alone, service.Ground{Files: files})
	if err != nil {
		return one, service.Instance{}, err
	}

	return one, list[0], nil
}

func serviceNames(p *service.Project) []string {
	list := make([]string, len(p.Services))
	for i, s := range p.Services {
		list[i] = s.Name
	}
	return list
}
