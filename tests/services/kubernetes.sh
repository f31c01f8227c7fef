#!/bin/sh
# Builds kube-apiserver and etcd from their sources into the folder that is named; several minutes.
set -eu
folder=$1 version=$2
work="$folder/source"
mkdir -p "$work/apiserver" "$work/etcd"
cd "$work"

cat > apiserver/main.go <<'GO'
package main

import (
	"os"

	_ "time/tzdata"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() { os.Exit(cli.Run(app.NewAPIServerCommand())) }
GO

cat > etcd/main.go <<'GO'
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
GO

# Inside its own repository Kubernetes replaces its parts by folders; published, they are modules of the same number.
described=$(go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/^[[:space:]]*"GoMod": "\(.*\)",*$/\1/p')
{
	printf 'module kubernetes-of-the-tests\n\ngo 1.24.0\n\nrequire k8s.io/kubernetes v%s\n\nreplace (\n' "$version"
	sed -n 's|^[[:space:]]*\(k8s.io/[a-z-]*\) => ./staging.*|\1|p' "$described" |
		while read -r part; do printf '\t%s => %s v0.%s\n' "$part" "$part" "${version#1.}"; done
	printf ')\n'
} > go.mod

label=k8s.io/component-base/version
minor=${version#1.}
flags="-s -w -X $label.gitVersion=v$version -X $label.gitMajor=1 -X $label.gitMinor=${minor%%.*}"
go build -mod=mod -o "$folder/etcd" ./etcd
go build -mod=mod -ldflags "$flags" -o "$folder/kube-apiserver" ./apiserver
rm -rf "$work"
