// Package redact takes out of texts who and where they are about: names of people and computers, private paths, addresses,
// identifiers of hardware. What is taken out is replaced by the same word everywhere, so that a reader can still tell
// one from another. It knows nothing of where the texts come from.
package redact

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Kind is what a secret is.
type Kind string

// Kinds of secrets that must be named, because no pattern finds them.
const (
	User    Kind = "user"    // a login name
	Host    Kind = "host"    // the name of a computer
	Path    Kind = "path"    // a whole path with blanks or other signs in it that end a path elsewhere
	Name    Kind = "name"    // of a folder, which is named without its path
	Command Kind = "program" // a command line: its program is kept when everybody has it, its arguments are not
)

// Secret is a text that must not survive.
type Secret struct {
	Kind Kind
	Text string
}

// Scrubber replaces secrets. It remembers what it replaced by what, so one must be used for all that belongs together.
type Scrubber struct {
	named    []Secret          // users, hosts and names of folders, longest first
	literals [][2]string       // what is replaced before anything else, longest first
	keep     map[string]bool   // texts that look like an address and are none
	said     map[string]string // by kind and secret: what stands for it
	count    map[Kind]int

	urls, mails, uuids, macs, ipv6, ipv4, domains, serials, paths, stands, known, everyday, tokens, words, inside *regexp.Regexp
	names                                                                                                         []*regexp.Regexp // of named
}

// New makes a scrubber for what is known to be secret. keep are texts that only look like addresses, such as versions
// with four numbers.
func New(secrets []Secret, keep []string) *Scrubber {
	s := &Scrubber{keep: map[string]bool{}, said: map[string]string{}, count: map[Kind]int{},
		urls: regexp.MustCompile(urls), mails: regexp.MustCompile(mails), uuids: regexp.MustCompile(uuids), macs: regexp.MustCompile(macs),
		ipv6: regexp.MustCompile(ipv6), ipv4: regexp.MustCompile(ipv4), domains: regexp.MustCompile(domains), serials: regexp.MustCompile(serials),
		paths: regexp.MustCompile(paths), stands: regexp.MustCompile(stands), known: regexp.MustCompile(known), everyday: regexp.MustCompile(everyday),
		tokens: regexp.MustCompile(tokens), words: regexp.MustCompile(words), inside: regexp.MustCompile(inside)}
	for _, k := range keep {
		s.keep[k] = true
	}
	secrets = slices.Clone(secrets)
	for _, x := range secrets { // texts name a command by its program or its script alone, too
		if x.Kind == Command {
			secrets = append(secrets, parts(x.Text)...)
		}
	}
	slices.SortStableFunc(secrets, func(a, b Secret) int {
		return cmp.Or(cmp.Compare(len(b.Text), len(a.Text)), strings.Compare(a.Text, b.Text))
	})
	for _, x := range secrets {
		word := x.Kind == User || x.Kind == Host || x.Kind == Name && !s.usual(x.Text) || x.Kind == Command && plain(x.Text) && !s.everyday.MatchString(x.Text)
		if word && !common(x.Text) && !s.stands.MatchString(x.Text) {
			s.named = append(s.named, x)
			s.names = append(s.names, regexp.MustCompile(wordPattern(x.Text)))
		}
	}
	for _, x := range secrets {
		switch {
		case x.Kind == Path && strings.Contains(x.Text, "/") && s.paths.FindString(x.Text) != x.Text:
			s.literals = append(s.literals, [2]string{x.Text, s.path(x.Text)})
		case x.Kind == Command && !plain(x.Text):
			if short := s.command(x.Text); short != x.Text {
				s.literals = append(s.literals, [2]string{x.Text, short})
			}
		}
	}
	return s
}

// common are names that half of all machines have: they tell nothing, and as words they are everywhere.
func common(name string) bool {
	return len(name) < 2 || slices.Contains([]string{
		"root", "nvidia", "ubuntu", "debian", "admin", "user", "users", "gpu", "gpuard", "cuda", "docker", "nobody", "daemon", "host",
		"localhost", "localdomain", "default", "conda", "python", "jupyter", "jovyan", "amd", "node", "runner", "build", "worker", "path", "dir",
		"name", "program", "address", "mail", "url", "serial", "no", "none", "all", "home", "test", "unknown",
	}, strings.ToLower(name)) || len(name) < long && digits(name)
}

// long is how many letters make a name that is taken out of the middle of words, and how many digits a number that may name
// somebody: some places number their people.
const long = 5

func digits(name string) bool { return strings.Trim(name, "0123456789") == "" }

// stand is what stands for a secret from now on.
func (s *Scrubber) stand(kind Kind, secret string) string {
	key := string(kind) + "\x00" + secret
	if s.said[key] == "" {
		s.count[kind]++
		s.said[key] = fmt.Sprintf("%s-%d", kind, s.count[kind])
	}
	return s.said[key]
}

// The patterns of what tells itself. A UUID may be written with its first letters only, as CUDA_VISIBLE_DEVICES takes it.
const (
	urls    = `[a-zA-Z][a-zA-Z0-9+.-]*://[^\s"'<>` + "`" + `]+`
	mails   = `(?:[^\s"'<>/@=,;:]+:[^\s"'<>/@]+|[\w.+%-]+)@[\w-]+(?:\.[\w-]+)*` // also NAME:PASSWORD@HOST
	uuids   = `(?i)\b(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b(?:GPU|MIG)-[0-9a-f]{3,8}(?:-[0-9a-f]{1,12}){0,4}\b|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b[0-9a-f]{32,}\b`
	macs    = `(?i)\b[0-9a-f]{2}(?:[:-][0-9a-f]{2}){5,}\b|\b0x[0-9a-f]{16}\b|\b[0-9a-f]{4}(?::[0-9a-f]{4}){3}\b`                                                                                // of Ethernet and of InfiniBand
	ipv6    = `(?i)(?:\b[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){7}|\b(?:[0-9a-f]{1,4}:){1,7}:(?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,6})?|::[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,6})(?:(?:\.[0-9]{1,3}){3})?` // its end may be an IPv4 address
	ipv4    = `\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?:\.[0-9]+)*\b`
	domains = `(?i)\b[a-z0-9-]+(?:\.[a-z0-9-]+)*\.(?:com|org|net|edu|gov|mil|local|lan|internal|corp|intra|home|arpa)\b|\b[a-z0-9-]+(?:\.[a-z0-9-]+)+\.(?:ac|ai|at|au|be|br|ca|ch|cn|cz|de|dk|es|eu|fi|fr|gr|hk|hu|ie|il|in|io|it|jp|kr|nl|no|nz|pl|pt|ru|se|sg|tw|uk|us)\b`
	tokens  = `\b(?:hf_|sk-|gh[a-z]_|github_pat_|glpat-|nvapi-|xox[a-z]-|AKIA|eyJ)[A-Za-z0-9._-]{12,}`
	words   = `(?i)([a-z0-9_-]*(?:token|passw(?:or)?d|secret|api[_-]?key|credentials?)[=:]\s*["']?)([^\s"'(][^\s"']*)`
	inside  = `(=)((?:[\w.+-]+/)+[\w.+-]+)` // a path that begins nowhere, as a value
	serials = `(?i)(\bserial(?:[ _-]?(?:number|no))?["']?\s*[:=]?\s*["']?)([a-z0-9-]*[0-9][a-z0-9-]{3,})`
	stands  = `^(?:user|host|name|program|address|mail|url|serial|secret)-[0-9]+(?:\.[a-z]+)?$`
	paths   = `(?:~(?:[a-zA-Z][\w.-]*)?|\.{1,2})?/[^\s"'<>|;,:*?()\[\]{}=` + "`" + `]+(?:/[^\s"'<>|;,:*?()\[\]{}=` + "`" + `]*)*|~[a-zA-Z][\w.-]*`
)

// Text is text without secrets.
func (s *Scrubber) Text(text string) string {
	for _, l := range s.literals {
		text = strings.ReplaceAll(text, l[0], l[1])
	}
	var kept []string // pages of vendors stay as they are: a sign that no text has takes their place meanwhile
	text = strings.ReplaceAll(text, hole, "")
	text = s.urls.ReplaceAllStringFunc(text, func(u string) string {
		if !page(u) {
			return s.stand("url", u)
		}
		kept = append(kept, u)
		return hole
	})
	text = s.tokens.ReplaceAllStringFunc(text, func(t string) string { return s.stand("secret", t) })
	text = s.words.ReplaceAllStringFunc(text, func(m string) string {
		parts := s.words.FindStringSubmatch(m)
		return parts[1] + s.stand("secret", parts[2])
	})
	text = s.mails.ReplaceAllStringFunc(text, func(m string) string { return s.stand("mail", strings.ToLower(m)) })
	text = s.uuids.ReplaceAllStringFunc(text, s.uuid)
	text = s.macs.ReplaceAllStringFunc(text, func(m string) string { return s.stand("address", strings.ToLower(m)) })
	text = outside(s.ipv6, text, s.address, func(_ string, _, behind byte) bool { return inWord(behind) }) // c10::Error is none
	text = s.ipv4.ReplaceAllStringFunc(text, s.address)
	text = s.domains.ReplaceAllStringFunc(text, func(d string) string {
		if public(d) {
			return d
		}
		return s.stand(Host, strings.ToLower(d))
	})
	text = s.serials.ReplaceAllStringFunc(text, func(m string) string {
		parts := s.serials.FindStringSubmatch(m)
		return parts[1] + s.stand("serial", parts[2])
	})
	text = outside(s.paths, text, s.path, func(found string, before, _ byte) bool {
		return inWord(before) && strings.Count(found, "/") == 1 // and/or
	})
	text = s.inside.ReplaceAllStringFunc(text, func(m string) string {
		if strings.HasPrefix(m, "=MIG-") || public(strings.TrimPrefix(strings.Split(m, "/")[0], "=")) {
			return m // a device, or a kind of them: nvidia.com/gpu
		}
		return "=" + s.path(m[1:])
	})
	for i, w := range s.named {
		text = s.word(text, w, s.names[i])
	}
	for _, u := range kept {
		text = strings.Replace(text, hole, u, 1)
	}
	return text
}

const hole = "\x00"

// outside replaces what a pattern finds, but for what is spared, by the signs before and behind it.
func outside(pattern *regexp.Regexp, text string, by func(string) string, spared func(found string, before, behind byte) bool) string {
	var out strings.Builder
	last := 0
	for _, at := range pattern.FindAllStringIndex(text, -1) {
		found := text[at[0]:at[1]]
		var before, behind byte
		if at[0] > 0 {
			before = text[at[0]-1]
		}
		if at[1] < len(text) {
			behind = text[at[1]]
		}
		if !spared(found, before, behind) {
			out.WriteString(text[last:at[0]] + by(found))
			last = at[1]
		}
	}
	return out.String() + text[last:]
}

func inWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// wordPattern: a long name is taken out of the middle of words too, as in alice2; a short one only where it stands for
// itself, because it is a part of many words.
func wordPattern(name string) string {
	if len(name) < long || digits(name) {
		return `(?i)(^|[^a-z0-9])` + regexp.QuoteMeta(name) + `($|[^a-z0-9])`
	}
	return `(?i)` + regexp.QuoteMeta(name)
}

func (s *Scrubber) word(text string, w Secret, pattern *regexp.Regexp) string {
	if !pattern.MatchString(text) {
		return text
	}
	stand := s.stand(w.Kind, strings.ToLower(w.Text))
	if len(w.Text) >= long && !digits(w.Text) {
		return pattern.ReplaceAllLiteralString(text, stand)
	}
	for range 2 { // the sign between two names belongs to one match only
		text = pattern.ReplaceAllString(text, "${1}"+stand+"${2}")
	}
	return text
}

// page reports whether a URL is one of a vendor's pages, which our own texts name.
func page(u string) bool {
	scheme, rest, _ := strings.Cut(u, "://")
	host, _, _ := strings.Cut(rest, "/")
	return (scheme == "https" || scheme == "http") && public(host) && !strings.ContainsAny(rest, "?@")
}

// public are hosts of documentation. What lies below names nobody.
func public(host string) bool {
	return slices.ContainsFunc([]string{"nvidia.com", "pytorch.org", "tensorflow.org", "onnxruntime.ai", "python.org", "docker.com", "kernel.org", "docs.jax.dev"},
		func(d string) bool { return host == d || strings.HasSuffix(host, "."+d) })
}

// address replaces an address, and keeps what is none: a version, ::, and what every machine calls itself.
func (s *Scrubber) address(a string) string {
	plain := strings.Trim(a, "0:.") == "" || a == "127.0.0.1" || a == "::1"
	if plain || s.keep[a] {
		return a
	}
	return s.stand("address", strings.ToLower(a))
}

// uuid numbers identifiers of devices and keeps their form: a machine file with them can be read, and a first part
// still names the device that it named.
func (s *Scrubber) uuid(u string) string {
	prefix := ""
	if strings.EqualFold(u[:min(3, len(u))], "GPU") || strings.EqualFold(u[:min(3, len(u))], "MIG") {
		prefix, u = u[:4], u[4:]
	}
	u = strings.ToLower(u)
	_, rest, whole := strings.Cut(u, "-")
	if len(rest) < 27 { // a part of one: which one is known when that was seen
		for key, said := range s.said {
			if seen, ok := strings.CutPrefix(key, "uuid\x00"); ok && strings.HasPrefix(seen, u) {
				return prefix + said
			}
		}
	}
	key := "uuid\x00" + u
	if s.said[key] == "" {
		s.count["uuid"]++
		s.said[key] = fmt.Sprintf("%08x", s.count["uuid"])
	}
	if !whole || len(rest) < 27 {
		return prefix + s.said[key]
	}
	return prefix + s.said[key] + "-0000-0000-0000-000000000000"
}

// JSON scrubs the texts of a JSON value and keeps its keys and form. The values of some keys are secret as a whole.
func (s *Scrubber) JSON(data []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("cannot scrub what is not JSON: %w", err)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(s.value("", v)); err != nil {
		return nil, fmt.Errorf("cannot write scrubbed JSON: %w", err)
	}
	return out.Bytes(), nil
}

func (s *Scrubber) value(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			v[k] = s.value(k, inner)
		}
	case []any:
		for i, inner := range v {
			v[i] = s.value(key, inner)
		}
	case string:
		key = strings.ToLower(key)
		switch {
		case v == "":
		case key == "user" && !common(v):
			return s.stand(User, strings.ToLower(v))
		case key == "command":
			return s.Text(s.command(v))
		case strings.HasPrefix(key, "serial"):
			return s.stand("serial", v)
		}
		return s.Text(v)
	}
	return v
}
