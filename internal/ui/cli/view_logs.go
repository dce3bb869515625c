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
)

// printer writes lines of instances, each after the name of its instance.
type printer struct {
	out   io.Writer
	term  Term
	names []string // in the order of their colours
	width int      // of the longest name
	alone bool     // one instance: no names
	drawn map[string]time.Time
	raw   bool // lines are written unchanged
	json  bool
	brief bool // leaves out gpuard's lines about starts and ends
}

// name adds an instance, and widens the column of names if needed.
func (o *printer) name(instance string) {
	o.names = append(o.names, instance)
	o.width = max(o.width, cells(instance))
}

// overEvery is the interval at which lines that replace each other, such as a progress bar, are shown.
const overEvery = 5 * time.Second

// print writes one line and a newline.
func (o *printer) print(line services.Line) error {
	if line.Over {
		if time.Since(o.drawn[line.Instance]) < overEvery {
			return nil
		}
		o.drawn[line.Instance] = time.Now()
	}
	if o.json {
		return lineJSON(o.out, loggedLine{"gpuard.logs/1", line.Instance, strings.ToValidUTF8(string(line.Text), "\ufffd")})
	}
	own := bytes.HasPrefix(line.Text, []byte("# gpuard: "))
	if own && o.brief && startOrEnd().Match(line.Text) {
		return nil
	}
	var b bytes.Buffer
	if !o.alone {
		o.lead(&b, line.Instance)
	}
	switch {
	case o.raw:
		b.Write(line.Text)
	case own:
		o.styled(&b, dim, prose.Clean(string(line.Text)))
	default:
		b.WriteString(harmless(string(line.Text), o.term.Color))
	}
	b.WriteByte('\n')
	_, err := o.out.Write(b.Bytes())
	return err
}

// startOrEnd matches the lines that gpuard writes into a log when a command starts and ends.
func startOrEnd() *regexp.Regexp {
	return regexp.MustCompile(`^# gpuard: \S+: (no GPU is visible to this job: |.*, lease \w+: |the service is over after )`)
}

func (o *printer) lead(b *bytes.Buffer, instance string) {
	colors := []style{cyan, green, yellow, blue, "35", "36;1", "32;1", "33;1"}
	i := max(slices.Index(o.names, instance), 0)
	width := o.width
	if o.term.TTY && o.term.Width > 0 {
		width = min(width, max(o.term.Width/3, 4))
	}
	o.styled(b, colors[i%len(colors)], pad(instance, width, false, "~")+" |")
	b.WriteByte(' ')
}

func (o *printer) styled(b *bytes.Buffer, s style, text string) {
	if !o.term.Color {
		b.WriteString(text)
		return
	}
	b.WriteString("\x1b[" + string(s) + "m" + text + "\x1b[0m")
}

// harmless keeps text, tabs and, with color, colours (SGR of ECMA-48). It removes all other control sequences.
func harmless(text string, color bool) string {
	if !strings.ContainsRune(text, 0x1b) {
		return tabbed(text)
	}
	var b strings.Builder
	colored := false
	for text != "" {
		before, rest, found := strings.Cut(text, "\x1b")
		b.WriteString(tabbed(before))
		if !found {
			break
		}
		sequence, after := escape(rest)
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

// escape cuts what follows an escape character into the control sequence and the rest (ECMA-48, section 5.3 to 5.6).
func escape(text string) (sequence, rest string) {
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
	case ']', 'P', 'X', '^', '_': // strings, until BEL or ST
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

func tabbed(text string) string {
	parts := strings.Split(text, "\t")
	for i := range parts {
		parts[i] = prose.Clean(parts[i])
	}
	return strings.Join(parts, "\t")
}
