// Package redact removes from texts what identifies people and machines: names of users and computers, private paths,
// addresses, hardware identifiers. Each is replaced by the same word everywhere, so that a reader can still distinguish
// them:
//
//	s := redact.New([]redact.Secret{{Kind: redact.User, Text: "alice"}}, nil)
//	clean := s.Text(text)
//
// It must not read the machine: the caller passes in the secrets.
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

// Kinds of secrets that the caller must list, because no pattern finds them.
const (
	User Kind = "user" // a login name
	// The name of a computer.
	Host Kind = "host"
	// A whole path with blanks or other characters that would end a path.
	Path Kind = "path"
	// Of a folder, for texts with the name but not the path.
	Name Kind = "name"
	// A command line: its program is kept if it is a common one, its arguments are not.
	Command Kind = "program"
)

// Secret is a text to be removed.
type Secret struct {
	Kind Kind
	Text string
}

// Scrubber replaces secrets. It remembers its replacements, so use the same one for all texts that belong together.
type Scrubber struct {
	// Users, hosts and names of folders, longest first.
	named []Secret
	// Replaced before all others, longest first.
	literals [][2]string
	// Texts that look like an address but are none.
	keep map[string]bool
	// Replacement by kind and secret.
	said  map[string]string
	count map[Kind]int

	urls, mails, uuids, macs, ipv6, ipv4, domains, serials, paths, replacements, known, everyday, tokens, words, inside *regexp.Regexp
	names                                                                                                               []*regexp.Regexp // of named
}

// New makes a scrubber for known secrets. keep are texts that only look like addresses, such as versions with four
// numbers.
func New(secrets []Secret, keep []string) *Scrubber {
	s := &Scrubber{keep: map[string]bool{}, said: map[string]string{}, count: map[Kind]int{},
		urls: regexp.MustCompile(urlPattern), mails: regexp.MustCompile(mailPattern), uuids: regexp.MustCompile(uuidPattern), macs: regexp.MustCompile(macPattern),
		ipv6: regexp.MustCompile(ipv6Pattern), ipv4: regexp.MustCompile(ipv4Pattern), domains: regexp.MustCompile(domainPattern), serials: regexp.MustCompile(serialPattern),
		paths: regexp.MustCompile(pathPattern), replacements: regexp.MustCompile(replacementPattern), known: regexp.MustCompile(knownNamePattern), everyday: regexp.MustCompile(everydayPattern),
		tokens: regexp.MustCompile(tokenPattern), words: regexp.MustCompile(secretWordPattern), inside: regexp.MustCompile(relativePathPattern)}

	for _, k := range keep {
		s.keep[k] = true
	}

	secrets = slices.Clone(secrets)
	for _, x := range secrets {
		// Texts may have only the program or the script of a command.
		if x.Kind == Command {
			secrets = append(secrets, commandNames(x.Text)...)
		}
	}

	slices.SortStableFunc(secrets, func(a, b Secret) int {
		return cmp.Or(cmp.Compare(len(b.Text), len(a.Text)), strings.Compare(a.Text, b.Text))
	})

	for _, x := range secrets {
		word := x.Kind == User || x.Kind == Host || x.Kind == Name && !s.isUsualName(x.Text) || x.Kind == Command && isPlainCommand(x.Text) && !s.everyday.MatchString(x.Text)
		if word && !isCommonName(x.Text) && !s.replacements.MatchString(x.Text) {
			s.named = append(s.named, x)
			s.names = append(s.names, regexp.MustCompile(wordPattern(x.Text)))
		}
	}

	for _, x := range secrets {
		switch {
		case x.Kind == Path && strings.Contains(x.Text, "/") && s.paths.FindString(x.Text) != x.Text:
			s.literals = append(s.literals, [2]string{x.Text, s.scrubPath(x.Text)})
		case x.Kind == Command && !isPlainCommand(x.Text):
			if short := s.scrubCommand(x.Text); short != x.Text {
				s.literals = append(s.literals, [2]string{x.Text, short})
			}
		}
	}

	return s
}

// isCommonName reports names that many machines have: they identify nothing, and occur as words everywhere.
func isCommonName(name string) bool {
	return len(name) < 2 || slices.Contains([]string{
		"root", "nvidia", "ubuntu", "debian", "admin", "user", "users", "gpu", "gpuard", "cuda", "docker", "nobody", "daemon", "host",
		"localhost", "localdomain", "default", "conda", "python", "jupyter", "jovyan", "amd", "node", "runner", "build", "worker", "path", "dir",
		"name", "program", "address", "mail", "url", "serial", "no", "none", "all", "home", "test", "unknown",
	}, strings.ToLower(name)) || len(name) < minLongName && isDigits(name)
}

// minLongName is the number of letters from which a name is replaced inside words too, and the number of digits from
// which a number may identify a person: some sites use numbers as user names.
const minLongName = 5

func isDigits(name string) bool { return strings.Trim(name, "0123456789") == "" }

// replacementFor is the replacement of a secret.
func (s *Scrubber) replacementFor(kind Kind, secret string) string {
	key := string(kind) + "\x00" + secret
	if s.said[key] == "" {
		s.count[kind]++
		s.said[key] = fmt.Sprintf("%s-%d", kind, s.count[kind])
	}
	return s.said[key]
}

// Patterns of secrets that are recognized by their form. A UUID may be shortened to its first letters, as in
// CUDA_VISIBLE_DEVICES.
const (
	urlPattern = `[a-zA-Z][a-zA-Z0-9+.-]*://[^\s"'<>` + "`" + `]+`
	// Also NAME:PASSWORD@HOST.
	mailPattern = `(?:[^\s"'<>/@=,;:]+:[^\s"'<>/@]+|[\w.+%-]+)@[\w-]+(?:\.[\w-]+)*`
	uuidPattern = `(?i)\b(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b(?:GPU|MIG)-[0-9a-f]{3,8}(?:-[0-9a-f]{1,12}){0,4}\b|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b[0-9a-f]{32,}\b`
	// Of Ethernet and of InfiniBand.
	macPattern = `(?i)\b[0-9a-f]{2}(?:[:-][0-9a-f]{2}){5,}\b|\b0x[0-9a-f]{16}\b|\b[0-9a-f]{4}(?::[0-9a-f]{4}){3}\b`
	// Its end may be an IPv4 address.
	ipv6Pattern       = `(?i)(?:\b[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){7}|\b(?:[0-9a-f]{1,4}:){1,7}:(?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,6})?|::[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,6})(?:(?:\.[0-9]{1,3}){3})?`
	ipv4Pattern       = `\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?:\.[0-9]+)*\b`
	domainPattern     = `(?i)\b[a-z0-9-]+(?:\.[a-z0-9-]+)*\.(?:com|org|net|edu|gov|mil|local|lan|internal|corp|intra|home|arpa)\b|\b[a-z0-9-]+(?:\.[a-z0-9-]+)+\.(?:ac|ai|at|au|be|br|ca|ch|cn|cz|de|dk|es|eu|fi|fr|gr|hk|hu|ie|il|in|io|it|jp|kr|nl|no|nz|pl|pt|ru|se|sg|tw|uk|us)\b`
	tokenPattern      = `\b(?:hf_|sk-|gh[a-z]_|github_pat_|glpat-|nvapi-|xox[a-z]-|AKIA|eyJ)[A-Za-z0-9._-]{12,}`
	secretWordPattern = `(?i)([a-z0-9_-]*(?:token|passw(?:or)?d|secret|api[_-]?key|credentials?)[=:]\s*["']?)([^\s"'(][^\s"']*)`
	// A relative path, as a value.
	relativePathPattern = `(=)((?:[\w.+-]+/)+[\w.+-]+)`
	serialPattern       = `(?i)(\bserial(?:[ _-]?(?:number|no))?["']?\s*[:=]?\s*["']?)([a-z0-9-]*[0-9][a-z0-9-]{3,})`
	replacementPattern  = `^(?:user|host|name|program|address|mail|url|serial|secret)-[0-9]+(?:\.[a-z]+)?$`
	pathPattern         = `(?:~(?:[a-zA-Z][\w.-]*)?|\.{1,2})?/[^\s"'<>|;,:*?()\[\]{}=` + "`" + `]+(?:/[^\s"'<>|;,:*?()\[\]{}=` + "`" + `]*)*|~[a-zA-Z][\w.-]*`
)

// Text returns the text without secrets.
func (s *Scrubber) Text(text string) string {
	for _, l := range s.literals {
		text = strings.ReplaceAll(text, l[0], l[1])
	}

	// URLs of vendors stay: a placeholder that no text contains replaces them meanwhile.
	var kept []string
	text = strings.ReplaceAll(text, urlHole, "")
	text = s.urls.ReplaceAllStringFunc(text, func(u string) string {
		if !isVendorPage(u) {
			return s.replacementFor("url", u)
		}
		kept = append(kept, u)
		return urlHole
	})

	text = s.tokens.ReplaceAllStringFunc(text, func(t string) string { return s.replacementFor("secret", t) })
	text = s.words.ReplaceAllStringFunc(text, func(m string) string {
		parts := s.words.FindStringSubmatch(m)
		return parts[1] + s.replacementFor("secret", parts[2])
	})

	text = s.mails.ReplaceAllStringFunc(text, func(m string) string { return s.replacementFor("mail", strings.ToLower(m)) })
	text = s.uuids.ReplaceAllStringFunc(text, s.scrubUUID)
	text = s.macs.ReplaceAllStringFunc(text, func(m string) string { return s.replacementFor("address", strings.ToLower(m)) })

	// c10::Error is no address.
	text = replaceUnlessSpared(s.ipv6, text, s.scrubAddress, func(_ string, _, after byte) bool { return isWordByte(after) })
	text = s.ipv4.ReplaceAllStringFunc(text, s.scrubAddress)
	text = s.domains.ReplaceAllStringFunc(text, func(d string) string {
		if isPublicHost(d) {
			return d
		}
		return s.replacementFor(Host, strings.ToLower(d))
	})

	text = s.serials.ReplaceAllStringFunc(text, func(m string) string {
		parts := s.serials.FindStringSubmatch(m)
		return parts[1] + s.replacementFor("serial", parts[2])
	})

	text = replaceUnlessSpared(s.paths, text, s.scrubPath, func(found string, before, _ byte) bool {
		// and/or.
		return isWordByte(before) && strings.Count(found, "/") == 1
	})

	text = s.inside.ReplaceAllStringFunc(text, func(m string) string {
		if strings.HasPrefix(m, "=MIG-") || isPublicHost(strings.TrimPrefix(strings.Split(m, "/")[0], "=")) {
			// A kind of device: nvidia.com/gpu.
			return m
		}
		return "=" + s.scrubPath(m[1:])
	})

	for i, w := range s.named {
		text = s.replaceWord(text, w, s.names[i])
	}

	for _, u := range kept {
		text = strings.Replace(text, urlHole, u, 1)
	}

	return text
}

const urlHole = "\x00"

// replaceUnlessSpared replaces the matches of a pattern, except those that spared reports by the characters before and
// after them.
func replaceUnlessSpared(pattern *regexp.Regexp, text string, by func(string) string, spared func(found string, before, after byte) bool) string {
	var out strings.Builder
	last := 0
	for _, at := range pattern.FindAllStringIndex(text, -1) {
		found := text[at[0]:at[1]]
		var before, after byte
		if at[0] > 0 {
			before = text[at[0]-1]
		}

		if at[1] < len(text) {
			after = text[at[1]]
		}

		if !spared(found, before, after) {
			out.WriteString(text[last:at[0]] + by(found))
			last = at[1]
		}
	}

	return out.String() + text[last:]
}

func isWordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// wordPattern: a long name is replaced inside words too, as in alice2; a short one only as a word of its own, because
// it is a part of many words.
func wordPattern(name string) string {
	if len(name) < minLongName || isDigits(name) {
		return `(?i)(^|[^a-z0-9])` + regexp.QuoteMeta(name) + `($|[^a-z0-9])`
	}
	return `(?i)` + regexp.QuoteMeta(name)
}

func (s *Scrubber) replaceWord(text string, w Secret, pattern *regexp.Regexp) string {
	if !pattern.MatchString(text) {
		return text
	}

	replaced := s.replacementFor(w.Kind, strings.ToLower(w.Text))
	if len(w.Text) >= minLongName && !isDigits(w.Text) {
		return pattern.ReplaceAllLiteralString(text, replaced)
	}

	for range 2 {
		// The character between two names belongs to only one match.
		text = pattern.ReplaceAllString(text, "${1}"+replaced+"${2}")
	}

	return text
}

// isVendorPage reports whether a URL is a vendor's page, which gpuard's own texts link to.
func isVendorPage(u string) bool {
	scheme, rest, _ := strings.Cut(u, "://")
	host, _, _ := strings.Cut(rest, "/")
	return (scheme == "https" || scheme == "http") && isPublicHost(host) && !strings.ContainsAny(rest, "?@")
}

// isPublicHost reports hosts of documentation, whose paths identify no one.
func isPublicHost(host string) bool {
	return slices.ContainsFunc([]string{"nvidia.com", "pytorch.org", "tensorflow.org", "onnxruntime.ai", "python.org", "docker.com", "kernel.org", "docs.jax.dev"},
		func(d string) bool { return host == d || strings.HasSuffix(host, "."+d) })
}

// scrubAddress replaces an address, except a version, ::, and addresses that every machine has.
func (s *Scrubber) scrubAddress(a string) string {
	plain := strings.Trim(a, "0:.") == "" || a == "127.0.0.1" || a == "::1"
	if plain || s.keep[a] {
		return a
	}
	return s.replacementFor("address", strings.ToLower(a))
}

// scrubUUID numbers identifiers of devices and keeps their form: a machine file with them stays valid, and a shortened
// identifier still means the same device.
func (s *Scrubber) scrubUUID(u string) string {
	prefix := ""
	if strings.EqualFold(u[:min(3, len(u))], "GPU") || strings.EqualFold(u[:min(3, len(u))], "MIG") {
		prefix, u = u[:4], u[4:]
	}

	u = strings.ToLower(u)
	_, rest, whole := strings.Cut(u, "-")
	if len(rest) < 27 {
		// A shortened one: it is resolved if the whole one was seen.
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

// ScrubJSON scrubs the texts of a ScrubJSON value and keeps its keys and form. The values of some keys are removed as a
// whole.
func (s *Scrubber) ScrubJSON(data []byte) ([]byte, error) {
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
	if err := enc.Encode(s.scrubValue("", v)); err != nil {
		return nil, fmt.Errorf("cannot write scrubbed JSON: %w", err)
	}

	return out.Bytes(), nil
}

func (s *Scrubber) scrubValue(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			v[k] = s.scrubValue(k, inner)
		}
	case []any:
		for i, inner := range v {
			v[i] = s.scrubValue(key, inner)
		}
	case string:
		key = strings.ToLower(key)
		switch {
		case v == "":
		case key == "user" && !isCommonName(v):
			return s.replacementFor(User, strings.ToLower(v))
		case key == "command":
			return s.Text(s.scrubCommand(v))
		case strings.HasPrefix(key, "serial"):
			return s.replacementFor("serial", v)
		}
		return s.Text(v)
	}
	return v
}
