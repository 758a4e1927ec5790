package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
)

// kill the processes of classbind in a pod at once, as a crash would. It finds
// them among those of the node, of which the tests see the processes.
func kill(p *corev1.Pod) error {
	found, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return err
	}
	uid := string(p.UID)
	killed := 0
	for _, path := range found {
		folder := filepath.Dir(path)
		// What cannot be read has ended.
		groups, _ := os.ReadFile(path) //nolint:gosec // It is in /proc.
		if !bytes.Contains(groups, []byte(uid)) && !bytes.Contains(groups, []byte(strings.ReplaceAll(uid, "-", "_"))) {
			continue
		}
		// The pod's sandbox has a process of its own, which stays.
		command, _ := os.ReadFile(filepath.Join(folder, "cmdline")) //nolint:gosec // It is in /proc.
		if !bytes.HasPrefix(command, []byte("/classbind\x00")) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil {
			return err
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return fmt.Errorf("cannot kill the process %d of the pod %s: %w", pid, p.Name, err)
		}
		killed++
	}
	if killed == 0 {
		return fmt.Errorf("cannot find the process of the pod %s: run the tests as root where the node's processes are seen", p.Name)
	}
	return nil
}
