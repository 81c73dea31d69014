package testenv_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/f4ee788f/quota/internal/testenv"
)

// again runs one test of this binary in a process of its own and returns what it
// printed and whether it passed.
func again(t *testing.T, test string, env ...string) (out string, passed bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run", "^"+test+"$")
	cmd.Env = slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, "CI=") || strings.HasPrefix(e, "QUOTA_TEST_")
	})
	cmd.Env = append(cmd.Env, env...)
	b, err := cmd.CombinedOutput()
	return string(b), err == nil
}

func TestMissingEngineSkipsAloudAndFailsInCI(t *testing.T) {
	nowhere := []string{"PATH=" + t.TempDir(), "QUOTA_TEST_ENGINES=local"}
	if out, passed := again(t, "TestRedisIsSharedAndClustered", nowhere...); !passed || !strings.Contains(out, "redis: SKIPPED") {
		t.Errorf("without an engine: passed = %v, want true and a word of why:\n%s", passed, out)
	}
	for _, required := range []string{"CI=true", "QUOTA_TEST_REQUIRE=1"} {
		if out, passed := again(t, "TestRedisIsSharedAndClustered", append(nowhere, required)...); passed {
			t.Errorf("without an engine and with %s the test passed:\n%s", required, out)
		}
	}
	if out, passed := again(t, "TestRedisIsSharedAndClustered", "QUOTA_TEST_ENGINES=podman"); passed {
		t.Errorf("an unknown QUOTA_TEST_ENGINES passed:\n%s", out)
	}
}

func TestGivenEnginesAreUsed(t *testing.T) {
	r, p := testenv.PrivateRedis(t), testenv.PrivatePostgres(t, false)
	for test, env := range map[string]string{
		"TestRedisIsSharedAndClustered":      "QUOTA_TEST_REDIS=" + strings.Join(r.Addrs(), ","),
		"TestPostgresGivesEachTestADatabase": "QUOTA_TEST_POSTGRES=" + p.OwnerURL(),
	} {
		if out, passed := again(t, test, env); !passed || !strings.Contains(out, ": given: ") {
			t.Errorf("%s with %s: passed = %v:\n%s", test, env, passed, out)
		}
	}
}
