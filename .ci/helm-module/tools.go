//go:build tools

// Package tools pins the helm that the tests of the chart use; .ci/helm builds it.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
