package alert

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/f4ee788f/quota/internal/policy"
)

// Bounds of a secret, decoded: those of Standard Webhooks.
const (
	minSecret    = 24
	maxSecret    = 64
	secretPrefix = "whsec_"
	maxSecrets   = 4 // of a webhook at once, while one replaces another
	// maxSecretFile bounds a file of secrets, at several times what they need.
	maxSecretFile = 4 << 10
)

// Secrets reads a webhook's secrets again each time, so that a file that changes is a rotation. All secrets sign, with
// spaces or lines between them in the file. Errors never hold what was read.
func Secrets(w policy.Webhook) ([][]byte, error) {
	text, from := os.Getenv(w.SecretEnv), "variable "+w.SecretEnv
	if w.SecretFile != "" {
		from = "file " + w.SecretFile
		b, err := readSecret(w.SecretFile)
		if err != nil {
			return nil, fmt.Errorf("the secret cannot be read: %w", err)
		}
		text = string(b)
	}
	secrets, err := parseSecrets(text)
	if err != nil {
		return nil, fmt.Errorf("the secret of %s: %w", from, err)
	}
	return secrets, nil
}

// readSecret reads a file that a document names. The file may never end, as a device, or have no writer, as a pipe.
func readSecret(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe is opened at once
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	if err == nil && len(b) > maxSecretFile {
		err = fmt.Errorf("%s has more than %d bytes", path, maxSecretFile)
	}
	return b, err
}

func parseSecrets(text string) (all [][]byte, err error) {
	for word := range strings.FieldsSeq(text) {
		encoded, ok := strings.CutPrefix(word, secretPrefix)
		secret, err := base64.StdEncoding.DecodeString(encoded)
		if !ok || err != nil || len(secret) < minSecret || len(secret) > maxSecret {
			return nil, fmt.Errorf("it must be %s and %d to %d bytes in base64", secretPrefix, minSecret, maxSecret)
		}
		all = append(all, secret)
	}
	if len(all) == 0 {
		return nil, errors.New("there is none")
	}
	if len(all) > maxSecrets {
		return nil, fmt.Errorf("there are %d; at most %d sign at once", len(all), maxSecrets)
	}
	return all, nil
}

// signature is the value of webhook-signature, by Standard Webhooks: a word for each secret.
func signature(secrets [][]byte, id string, at time.Time, body string) string {
	words := make([]string, len(secrets))
	for i, secret := range secrets {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "." + body))
		words[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return strings.Join(words, " ")
}
