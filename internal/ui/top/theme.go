package top

import (
	"image/color"
	"slices"

	"charm.land/lipgloss/v2"

	"gpuard/internal/ui/translate"
)

// theme is how the screen is coloured. No colour says anything that the text does not say, too.
type theme struct {
	name string
	// The colours of the first users that are seen; further ones are grey.
	users []string
	good, warn, bad, low, high,
	dim string // "" is the colour of the terminal
}

// The colours of users keep apart for people with any colour vision: Okabe and Ito, "Color Universal Design", 2008, lighter on a dark
// background and darker on a light one.
var (
	darkTheme = theme{"dark", []string{"#56b4e9", "#e69f00", "#35c79a", "#f0e442", "#cc79a7", "#6f9bff", "#ff8c5a", "#b0d0a0"},
		"#35c79a", "#e6b000", "#ff6b5e", "#7d8590", "#56b4e9", "#8b949e"}
	lightTheme = theme{"light", []string{"#0072b2", "#a86400", "#00785a", "#7a6a00", "#a0447a", "#3b4fc4", "#c2410c", "#4d6b3c"},
		"#00785a", "#8a6500", "#c0260f", "#6e7781", "#0060a0", "#656d76"}
	monoTheme = theme{name: "mono"}
)

// themes are those that can be chosen, in the order of the key.
func themes() []theme { return []theme{darkTheme, lightTheme, monoTheme} }

// themeOf is the theme of a name; "auto" begins dark, until the terminal tells its background.
func themeOf(name string, colourless bool) (chosen theme, asks bool) {
	if colourless && (name == "" || name == "auto") {
		return monoTheme, false
	}
	for _, t := range themes() {
		if t.name == name {
			return t, false
		}
	}
	return darkTheme, true
}

// paintText gives text a colour; "" leaves it.
func (t *theme) paintText(text, code string) string {
	if code == "" || text == "" {
		return text
	}
	return lipgloss.NewStyle().Foreground(lipgloss.Color(code)).Render(text)
}

// colourAt is the colour of a user, by the order in which users were seen.
func (t *theme) colourAt(place int) string {
	if place < 0 || place >= len(t.users) {
		return t.dim
	}
	return t.users[place]
}

// loadColour is the colour of a load, 0..1: grey for one that does nothing, then calm, then warm. The number stands beside it.
func (t *theme) loadColour(load float64) string {
	switch {
	case load < idleLoad:
		return t.low
	case load < highLoad:
		return t.high
	}
	return t.good
}

// Loads below the first do nothing, those above the second are what a GPU is for.
const (
	idleLoad = 0.05
	highLoad = 0.6
)

func (t *theme) dimText(text string) string {
	if t.name == monoTheme.name {
		return lipgloss.NewStyle().Faint(true).Render(text)
	}
	return t.paintText(text, t.dim)
}

// invertText is the chosen line.
func invertText(text string) string { return lipgloss.NewStyle().Reverse(true).Render(text) }

func boldText(text string) string { return lipgloss.NewStyle().Bold(true).Render(text) }

// isDark reports whether a background is dark.
func isDark(c color.Color) bool {
	r, g, b, _ := c.RGBA()
	return 299*r+587*g+114*b < 500*0xffff
}

// screenStyle is how the screen speaks: colours, language, and whose screen it is.
type screenStyle struct {
	theme theme
	// The theme depends on the background of the terminal.
	asks     bool
	language translate.Language
	me       string
	// The names of users in the order in which they were seen: that of their colours.
	names []string
}

// say says a sentence in the language of the user.
func (s *screenStyle) say(text string) string { return s.language.Translate(text) }

// sayWord translates the word for everybody; a name stays.
func (s *screenStyle) sayWord(text string) string {
	if text == everybody {
		return s.say(text)
	}
	return text
}

const everybody = "all"

// meetUser gives a user the next colour.
func (s *screenStyle) meetUser(name string) {
	if !slices.Contains(s.names, name) {
		s.names = append(s.names, name)
	}
}

// colourOf is the colour of a user; "" for one who has none.
func (s *screenStyle) colourOf(name string) string {
	i := slices.Index(s.names, name)
	if i < 0 {
		return ""
	}
	return s.theme.colourAt(i)
}

// paintUser colours what belongs to a user; one's own stands out.
func (s *screenStyle) paintUser(r *row, text string) string {
	painted := s.theme.paintText(text, s.colourOf(r.user))
	if r.user == s.me {
		return boldText(painted)
	}
	return painted
}

// paintOdd marks what should be looked at.
func (s *screenStyle) paintOdd(r *row, text string) string {
	if r.odd {
		return s.theme.paintText(text, s.theme.warn)
	}
	return text
}

func (s *screenStyle) paintFaint(_ *row, text string) string { return s.theme.dimText(text) }

// nextTheme changes to the next theme.
func (s *screenStyle) nextTheme() {
	all := themes()
	i := slices.IndexFunc(all, func(t theme) bool { return t.name == s.theme.name })
	s.theme, s.asks = all[(i+1)%len(all)], false
}
