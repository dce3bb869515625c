package setup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gpuard/internal/app/exit"
	"gpuard/internal/core/edit"
	"gpuard/internal/text/unit"
)

// queueUnit is the name of its unit.
const queueUnit = "gpuard-queue.service"

// QueueWish has the user's manager of systemd start the queue of gpuard submit after a boot. When the unit is stopped,
// the processes of the queue and its jobs go on, and end by themselves.
func (s *Setup) QueueWish() (ChangePlan, error) {
	program, err := ProgramPath()
	if err != nil {
		return ChangePlan{}, err
	}
	if strings.ContainsAny(program, "$\"'\\") {
		return ChangePlan{}, &exit.Usage{Text: fmt.Sprintf("cannot name %q in a unit: systemd takes no such name for a program; install gpuard elsewhere", program)}
	}

	where, err := s.unitFolders(true)
	if err != nil {
		return ChangePlan{}, err
	}

	text := fmt.Sprintf(`# Written by gpuard setup queue; taken away by gpuard setup queue --remove.
[Unit]
Description=The jobs of gpuard submit

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=%s queue --mine
StandardOutput=null
KillMode=process

[Install]
WantedBy=default.target
`, unit.QuoteWord(program, true))

	w := ChangePlan{Key: "queue", Changes: []edit.Change{{Path: filepath.Join(where.own, queueUnit), Content: text}},
		Try: []string{"systemctl --user daemon-reload", "systemctl --user enable --now " + queueUnit, "gpuard queue"}}

	if !s.hasLinger() {
		w.Notes = append(w.Notes, "your manager starts with your first login and may end your jobs with the last; with the machine, and until it is switched off: loginctl enable-linger")
	}

	return w, nil
}

// hasLinger reports whether the user's manager runs without a login: systemd-logind keeps a file of that name.
func (s *Setup) hasLinger() bool {
	_, err := os.Stat(filepath.Join("/", s.Host.Root, "var/lib/systemd/linger", s.Host.Names(uint32(os.Geteuid())))) //nolint:gosec // a uid
	return err == nil
}
