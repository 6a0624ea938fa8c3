//go:build never

package leaderelection_test

// Imports of client-go's own tests, so that go.mod lists them. The tag keeps other tests from compiling them.
import (
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/stretchr/testify/assert"
	_ "k8s.io/client-go/kubernetes/fake"
	_ "k8s.io/klog/v2/ktesting"
)
