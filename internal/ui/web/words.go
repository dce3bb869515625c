package web

import (
	"net/http"
	"strings"

	"gpuard/internal/ui/translate"
)

// languageOf is the first language of the browser's wish that the page has.
func languageOf(r *http.Request) string {
	for wish := range strings.SplitSeq(r.Header.Get("Accept-Language"), ",") {
		tag, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(wish)), ";")
		switch {
		case translate.ReadLocale(tag) != translate.Language{}:
			return "zh"
		case strings.HasPrefix(tag, "en"):
			return "en"
		}
	}
	return "en"
}

// translatorOf says the page's own words, and sentences about devices and jobs, as the command line does.
func translatorOf(language string) func(string) string {
	return translate.ReadLocale(language).Translate
}
