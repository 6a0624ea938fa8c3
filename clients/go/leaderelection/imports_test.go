//go:build never

package leaderelection_test

// What client-go's own tests import, for go.mod. Other tests need not wait until it is compiled.
import (
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/stretchr/testify/assert"
	_ "k8s.io/client-go/kubernetes/fake"
	_ "k8s.io/klog/v2/ktesting"
)
