// Package webhook posts JSON to an address. It keeps no state, tries once, and follows no redirect: the address is what
// an administrator wrote, and nobody else says where messages go. It must not be linked into gpuard, whose start it
// would slow down.
//
//	err := webhook.Post(ctx, "https://chat.example.org/hooks/gpus", body)
package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// PostTimeout is how long a post may take.
const PostTimeout = 10 * time.Second

// Post posts a body, and fails unless the answer is one of success. The error has the host of the address and not its
// path, which may be a secret.
func Post(ctx context.Context, address string, body []byte) error {
	ctx, end := context.WithTimeout(ctx, PostTimeout)
	defer end()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return errors.New("cannot post to the webhook: its address is none")
	}

	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "gpuard")
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(request)
	var inner *url.Error
	if errors.As(err, &inner) {
		err = inner.Err
	}

	if err != nil {
		return fmt.Errorf("cannot post to the webhook at %s: %w", request.URL.Host, err)
	}

	defer answer.Body.Close() //nolint:errcheck // read only

	// So that the connection can be used again.
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10))
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("cannot post to the webhook at %s: it answers %s", request.URL.Host, answer.Status)
	}

	return nil
}
