package container

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/option"
)

// need is what a command of an engine needs of gpuard.
type need int

const (
	// gpuard does not know whether it starts a process in a container.
	startsUnknown need = iota
	startsNothing      // it starts none
	// It starts containers, and gpuard keeps a lease as long as they live.
	startsLeased
	// It starts a process in a container that runs.
	startsInside
	buildsImage // it makes an image
	// It starts containers that live on when it ends, and gpuard would not see their end.
	startsOutliving
)

// commandNeeds is what each command of docker 29, of its plugins and of podman 4 to 6 needs. A group such as "pod" has
// a line for all of its commands that have none of their own.
//
// docker/cli: docs/reference/commandline; containers/podman: docs/source/markdown; docker/compose: docs/reference.
func commandNeeds() map[need]string {
	return map[need]string{
		startsLeased: "run,create,start,restart,compose up,compose run",
		startsInside: "exec,compose exec",
		buildsImage:  "build,image build,builder build,buildx,bake,farm,compose build",
		startsNothing: ",attach,commit,cp,diff,events,export,help,history,images,import,info,init,inspect,kill,list,load,login,logout,logs,ls,pause,port,ps,pull,push,rename,rm,rmi,save,search,stats,stop,tag,top," +
			"unpause,untag,update,version,wait,exists,mount,unmount,umount,prune,checkpoint,cleanup,healthcheck,generate,completion," +
			"artifact,builder,checkpoint,config,context,image,machine,manifest,network,node,plugin,secret,swarm,system,trust,volume," +
			"container,kube,kube down,kube generate,play,pod,pod exists,pod inspect,pod kill,pod list,pod logs,pod ls,pod pause,pod prune,pod ps,pod rm,pod stats,pod stop,pod top,pod unpause," +
			"service,service inspect,service list,service logs,service ls,service ps,service rm,stack,stack config,stack list,stack ls,stack ps,stack rm,stack services," +
			"compose,compose attach,compose commit,compose config,compose convert,compose cp,compose down,compose events,compose export,compose help,compose images,compose kill,compose logs,compose ls," +
			"compose pause,compose port,compose ps,compose publish,compose pull,compose push,compose rm,compose stats,compose stop,compose top,compose unpause,compose version,compose viz,compose volumes,compose wait",
		startsOutliving: "kube play,kube apply,play kube,pod create,pod clone,pod start,pod restart,stack deploy,stack up,service create,service update,service scale,service rollback,auto-update,clone,restore,runlabel," +
			"compose create,compose start,compose restart,compose scale,compose watch,compose alpha,compose bridge",
	}
}

// commandGroups are commands whose own commands differ in what they need.
func commandGroups() []string {
	return strings.Fields("builder compose image kube play pod service stack")
}

// needOf is what a command needs: "run", "pod create".
func needOf(command string) need {
	for need, names := range commandNeeds() {
		if slices.Contains(strings.Split(names, ","), command) {
			return need
		}
	}
	if group, _, of := strings.Cut(command, " "); of && (group == "image" || group == "builder") {
		return startsNothing
	}
	return startsUnknown
}

// Idle reports whether the command starts no process in a container, so that no GPU is needed for it.
func (c Call) Idle() bool { return c.need == startsNothing || c.need == buildsImage }

// KeepsLease reports whether the command starts containers on a lease that lives as long as they do.
func (c Call) KeepsLease() bool { return c.need == startsLeased }

// StartsContainer reports whether the command is known to start a process in a container.
func (c Call) StartsContainer() bool {
	return c.need == startsLeased || c.need == startsInside || c.need == startsOutliving
}

// refuseCommand is why gpuard does not start such a command; nil it does.
func (c Call) refuseCommand() error {
	instead := fmt.Sprintf("start each container by gpuard %s -- run …", c.Engine)
	if c.Engine == "docker" {
		instead += option.Expand(", or a project by {gpuard docker} -- compose up")
	}

	switch c.need {
	case startsOutliving:
		return fmt.Errorf("cannot lease for %s %s: its containers live on when it ends, and the lease would not; %s", c.Engine, c.command, instead)
	case startsUnknown:
		return fmt.Errorf("cannot lease for %s %s: gpuard does not know what it starts; type it without gpuard, or %s", c.Engine, c.command, instead)
	case buildsImage:
		return c.refuseBuild()
	}

	return nil
}

// refuseBuild is why an image cannot be made: a step of it would have devices, and gpuard leases none for a build.
func (c Call) refuseBuild() error {
	for i, word := range c.after {
		name, value, given := strings.Cut(word, "=")
		if !given && i+1 < len(c.after) {
			value = c.after[i+1]
		}

		bad := slices.Contains([]string{"--device", "--gpus", "--privileged", "--cdi-spec-dir"}, name) || name == "--cap-add" && judgeCapability(value) != "" ||
			name == "--allow" && (strings.HasPrefix(value, "device") || strings.HasPrefix(value, "security"))

		if name == "--volume" || strings.HasPrefix(word, "-v") && !strings.HasPrefix(word, "--") {
			from, _, _ := strings.Cut(cmp.Or(strings.TrimPrefix(strings.TrimPrefix(word, "-v"), "="), value), ":")
			bad = strings.HasPrefix(from, "/") && judgePath(from) != ""
		}

		if bad {
			return fmt.Errorf("cannot build an image with %s: no GPU is leased for a build; leave it out, or build without gpuard", word)
		}
	}
	return nil
}
