package cli

import (
	"bytes"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"gpuard/internal/app/services"
	"gpuard/internal/core/prose"
	"gpuard/internal/ui/console"
)

// loggedLine is the JSON answer of logs, for each line.
type loggedLine struct {
	Schema   string `json:"schema"`   // "gpuard.logs/1"
	Instance string `json:"instance"` // that wrote it
	// The line; bytes that are not UTF-8 are replaced.
	Text string `json:"text"`
}

// Printer writes lines of instances, each after the name of its instance.
type Printer struct {
	Out  io.Writer
	term console.Term
	// The names in the order of their colours.
	Names []string
	// The width of the longest name.
	width int
	// One instance: no names.
	Alone bool
	drawn map[string]time.Time
	// Lines are written unchanged.
	raw  bool
	JSON bool
	// Leaves out gpuard's lines about starts and ends.
	Brief bool
}

// Name adds an instance, and widens the column of names if needed.
func (p *Printer) Name(instance string) {
	p.Names = append(p.Names, instance)
	p.width = max(p.width, console.CellWidth(instance))
}

// overEvery is the interval at which lines that replace each other, such as a progress bar, are shown.
const overEvery = 5 * time.Second

// Print writes one line and a newline.
func (p *Printer) Print(line services.LogLine) error {
	if line.Over {
		if time.Since(p.drawn[line.Instance]) < overEvery {
			return nil
		}
		p.drawn[line.Instance] = time.Now()
	}

	if p.JSON {
		return LineJSON(p.Out, loggedLine{"gpuard.logs/1", line.Instance, strings.ToValidUTF8(string(line.Text), "\ufffd")})
	}

	own := bytes.HasPrefix(line.Text, []byte("# gpuard: "))
	if own && p.Brief && startOrEnd().Match(line.Text) {
		return nil
	}

	var b bytes.Buffer
	if !p.Alone {
		p.writeLead(&b, line.Instance)
	}

	switch {
	case p.raw:
		b.Write(line.Text)
	case own:
		p.writeStyled(&b, console.Dim, prose.Clean(string(line.Text)))
	default:
		b.WriteString(cleanSequences(string(line.Text), p.term.Color))
	}

	b.WriteByte('\n')
	_, err := p.Out.Write(b.Bytes())

	return err
}

// startOrEnd matches the lines that gpuard writes into a log when a command starts and ends.
func startOrEnd() *regexp.Regexp {
	return regexp.MustCompile(`^# gpuard: \S+: (no GPU is visible to this job: |.*, lease \w+: |the service is over after )`)
}

func (p *Printer) writeLead(b *bytes.Buffer, instance string) {
	colors := []console.Style{console.Cyan, console.Green, console.Yellow, console.Blue, "35", "36;1", "32;1", "33;1"}
	i := max(slices.Index(p.Names, instance), 0)
	width := p.width
	if p.term.TTY && p.term.Width > 0 {
		width = min(width, max(p.term.Width/3, 4))
	}

	p.writeStyled(b, colors[i%len(colors)], console.Pad(instance, width, false, "~")+" |")
	b.WriteByte(' ')
}

func (p *Printer) writeStyled(b *bytes.Buffer, s console.Style, text string) {
	if !p.term.Color {
		b.WriteString(text)
		return
	}
	b.WriteString("\x1b[" + string(s) + "m" + text + "\x1b[0m")
}

// cleanSequences keeps text, tabs and, with color, colours (SGR of ECMA-48). It removes all other control sequences.
func cleanSequences(text string, color bool) string {
	if !strings.ContainsRune(text, 0x1b) {
		return cleanKeepingTabs(text)
	}

	var b strings.Builder
	colored := false
	for text != "" {
		before, rest, found := strings.Cut(text, "\x1b")
		b.WriteString(cleanKeepingTabs(before))
		if !found {
			break
		}

		sequence, after := cutSequence(rest)
		if color && strings.HasPrefix(sequence, "[") && strings.HasSuffix(sequence, "m") && strings.Trim(sequence[1:len(sequence)-1], "0123456789;:") == "" {
			b.WriteString("\x1b" + sequence)
			colored = true
		}

		text = after
	}

	if colored {
		b.WriteString("\x1b[0m")
	}

	return b.String()
}

// cutSequence cuts what follows an escape character into the control sequence and the rest (ECMA-48, section 5.3 to
// 5.6).
func cutSequence(text string) (sequence, rest string) {
	if text == "" {
		return "", ""
	}
	end := 1
	switch text[0] {
	case '[':
		for end < len(text) && text[end] < 0x40 && text[end] >= 0x20 {
			end++
		}
		end = min(end+1, len(text))
	case ']', 'P', 'X', '^', '_':
		// Strings, until BEL or ST.
		for end < len(text) && text[end] != 0x07 && text[end] != 0x1b {
			end++
		}
		if end < len(text) && text[end] == 0x1b {
			end++
		}
		end = min(end+1, len(text))
	}

	return text[:end], text[end:]
}

func cleanKeepingTabs(text string) string {
	parts := strings.Split(text, "\t")
	for i := range parts {
		parts[i] = prose.Clean(parts[i])
	}
	return strings.Join(parts, "\t")
}
