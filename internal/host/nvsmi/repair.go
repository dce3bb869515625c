package nvsmi

import (
	"bytes"
	"slices"
)

// repairXML makes nvidia-smi's output valid XML without changing any reading:
//   - it drops bytes that XML forbids (the owner of a process chooses its name);
//   - it drops comments, in which XML forbids "--" and people do not;
//   - it drops the long lists of supported clocks: they are not used here, and some drivers forget tags in them
//     (lollipopkit/flutter_server_box issue 286);
//   - it escapes "<" and a bare "&" in process names.
func repairXML(input []byte) []byte {
	out := bytes.ToValidUTF8(input, nil)
	out = bytes.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
			return -1
		}
		return r
	}, out)

	out = replaceBetween(out, "<!--", "-->", func([]byte) []byte { return nil })
	out = replaceBetween(out, "<supported_clocks>", "</supported_clocks>", func([]byte) []byte { return nil })

	return replaceBetween(out, "<process_name>", "</process_name>", escapeName)
}

// replaceBetween replaces the text between each opening mark and the next closing mark.
func replaceBetween(text []byte, open, end string, replace func([]byte) []byte) []byte {
	var out []byte
	for {
		i := bytes.Index(text, []byte(open))
		if i < 0 {
			break
		}

		i += len(open)
		j := bytes.Index(text[i:], []byte(end))
		if j < 0 {
			break
		}

		out = append(append(out, text[:i]...), replace(text[i:i+j])...)
		text = text[i+j:]
	}
	if out == nil {
		return text
	}

	return append(out, text...)
}

func escapeName(name []byte) []byte {
	var out []byte
	for i, c := range name {
		switch {
		case c == '<':
			out = append(out, "&lt;"...)
		case c == '&' && !startsEntity(name[i:]):
			out = append(out, "&amp;"...)
		default:
			out = append(out, c)
		}
	}
	return out
}

// startsEntity reports whether s begins with one of XML's five named entities. A number such as "&#10;" may be out of
// XML's range, so its ampersand is text.
func startsEntity(s []byte) bool {
	return slices.ContainsFunc([]string{"&amp;", "&lt;", "&gt;", "&quot;", "&apos;"}, func(e string) bool { return bytes.HasPrefix(s, []byte(e)) })
}
