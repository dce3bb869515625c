package seecmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/app/leases"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/prose"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/console"
)

// busView is the JSON answer of status --pci.
type busView struct {
	Schema string     `json:"schema"` // "gpuard.pci/1"
	Cards  []busEntry `json:"cards"`
}

// busEntry is one display controller or accelerator on the PCI bus.
type busEntry struct {
	PCI string `json:"pci"` // address
	// Vendor and device, as "10de:2330"; "" on an invented or recorded machine.
	ID string `json:"id"`
	// Kernel module bound to it; "" none, or not known.
	Driver string `json:"driver"`
	// The name that gpuard gives it, such as "0"; "" for a card that no reader knows.
	GPU  string   `json:"gpu"`
	Name string   `json:"name"`
	UUID gpu.UUID `json:"uuid"`
}

// showBus writes the cards of the PCI bus. The devices of an invented or recorded machine are all that is known of its
// bus.
func showBus(ctx context.Context, p *cli.Program, asJSON bool) error {
	v := busView{Schema: "gpuard.pci/1", Cards: []busEntry{}}
	m, err := leases.ReadIdentity(ctx, p.Host)
	var none *gpu.Unavailable
	if err != nil && !errors.As(err, &none) {
		return err
	}

	for i := range m.Devices {
		d := &m.Devices[i]
		number := strings.TrimPrefix(machine.DeviceName(m, *d), "GPU ")
		v.Cards = append(v.Cards, busEntry{PCI: d.PCI, GPU: number, Name: prose.Clean(d.Name), UUID: d.UUID})
	}

	if p.Host.IsHardware() {
		cards, err := p.Host.Cards()
		if err != nil {
			return err
		}

		for _, c := range cards {
			i := slices.IndexFunc(v.Cards, func(e busEntry) bool { return e.PCI == c.PCI })
			if i < 0 {
				i, v.Cards = len(v.Cards), append(v.Cards, busEntry{PCI: c.PCI})
			}
			v.Cards[i].ID, v.Cards[i].Driver = fmt.Sprintf("%04x:%04x", c.Vendor, c.Device), c.Driver
		}
	}

	slices.SortFunc(v.Cards, func(a, b busEntry) int { return strings.Compare(a.PCI, b.PCI) })
	if asJSON {
		return cli.WriteJSON(p.Out, v)
	}

	table := console.Page{Term: p.Term(p.Out)}
	writeBusTable(&table, v.Cards)
	_, err = fmt.Fprint(p.Out, table.Out.String())

	return err
}

// writeBusTable writes the cards as a table.
func writeBusTable(p *console.Page, cards []busEntry) {
	if len(cards) == 0 {
		p.Line(console.Normal.Span("No GPU or accelerator on the PCI bus"))
		return
	}

	rows := [][]string{{"PCI", "ID", "DRIVER", "GPU", "MODEL"}}
	for _, c := range cards {
		rows = append(rows, []string{c.PCI, c.ID, c.Driver, c.GPU, p.Text(c.Name)})
	}

	widths, _ := p.ColumnWidths(rows)
	for n, row := range rows {
		s, line := console.Normal, ""
		if n == 0 {
			s = console.Dim
		}

		for i, text := range row {
			if text == "" {
				text = "-"
			}
			line += console.Pad(text, widths[i], false, "") + console.ColumnGap
		}
		p.Line(s.Span(line))
	}
}
