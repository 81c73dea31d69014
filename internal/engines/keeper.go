package engines

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// keeperScript reads what was started and what has ended, one fact a line. Its input ends when the process that started
// everything ends. Then it ends what is still there: with its own signal first (Postgres frees its shared memory on
// QUIT), with KILL after three seconds.
const keeperScript = `
trap '' INT TERM HUP QUIT
root=$1
running=' '
boxes=' '
while read -r what id signal; do
  case $what in
  started)   running="$running$id:$signal " ;;
  ended)     running=$(printf '%s' "$running" | sed "s/ $id:[A-Z]* / /") ;;
  container) boxes="$boxes$id " ;;
  removed)   boxes=$(printf '%s' "$boxes" | sed "s/ $id / /") ;;
  esac
done
for p in $running; do kill -"${p#*:}" "${p%:*}"; kill -CONT "${p%:*}"; done
left=30
for p in $running; do
  while kill -0 "${p%:*}" && [ $left -gt 0 ]; do left=$((left - 1)); sleep 0.1; done
  kill -KILL "${p%:*}"
done
if [ "$boxes" != ' ' ]; then docker rm -f -v $boxes; fi
rm -rf -- "$root"
`

// keeper is this process's keeper. It is started with the first engine and ends by itself after this process.
var keeper struct {
	once sync.Once
	err  error
	root string

	mu   sync.Mutex
	pipe *os.File
}

func startKeeper() error {
	keeper.once.Do(func() {
		keeper.err = func() error {
			sh, err := exec.LookPath("sh")
			if err != nil {
				return fmt.Errorf("engines: %w", err)
			}
			root, err := os.MkdirTemp("", "quota-engines-")
			if err != nil {
				return fmt.Errorf("engines: %w", err)
			}
			// MkdirTemp makes the directory 0700, but Postgres runs as another user below it.
			if err := os.Chmod(root, 0o755); err != nil {
				return fmt.Errorf("engines: %w", err)
			}
			r, w, err := os.Pipe()
			if err != nil {
				return fmt.Errorf("engines: %w", err)
			}
			defer r.Close()
			null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
			if err != nil {
				return fmt.Errorf("engines: %w", err)
			}
			defer null.Close()
			// The keeper gets neither our output, whose reader would wait for it, nor our session, whose terminal's
			// interrupt would end it too early.
			p, err := os.StartProcess(sh, []string{"sh", "-c", keeperScript, "keeper", root}, &os.ProcAttr{
				Dir:   "/",
				Env:   os.Environ(),
				Files: []*os.File{r, null, null},
				Sys:   &syscall.SysProcAttr{Setsid: true},
			})
			if err != nil {
				return fmt.Errorf("engines: start the keeper: %w", err)
			}
			keeper.root, keeper.pipe = root, w
			return p.Release()
		}()
	})
	return keeper.err
}

// tell gives the keeper one fact. If the keeper is gone, only their owner ends engines that run.
func tell(format string, args ...any) {
	keeper.mu.Lock()
	defer keeper.mu.Unlock()
	if keeper.pipe != nil {
		fmt.Fprintf(keeper.pipe, format+"\n", args...)
	}
}

// TempDir makes a new directory that another user can traverse. It is removed when this process has ended, if the
// caller has not removed it before.
func TempDir(name string) (string, error) {
	if err := startKeeper(); err != nil {
		return "", err
	}
	if err := os.MkdirAll(keeper.root, 0o755); err != nil {
		return "", fmt.Errorf("engines: %w", err)
	}
	dir, err := os.MkdirTemp(keeper.root, name+"-")
	if err != nil {
		return "", fmt.Errorf("engines: %w", err)
	}
	return dir, os.Chmod(dir, 0o755)
}

// RemoveTempDirs removes everything that TempDir made. Call it when all engines are stopped.
func RemoveTempDirs() error {
	if keeper.root == "" {
		return nil
	}
	return os.RemoveAll(keeper.root)
}

// KeepContainer has a Docker container removed after this process has ended. LetContainer takes that back for a
// container that is removed already.
func KeepContainer(id string) error {
	if err := startKeeper(); err != nil {
		return err
	}
	tell("container %s", id)
	return nil
}

// LetContainer is described at KeepContainer.
func LetContainer(id string) { tell("removed %s", id) }
