{{/* The name of all objects: bayplan-scheduler, bayplan-shadow, or what the values say. */}}
{{- define "bayplan.name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else -}}
{{- $part := ternary "shadow" "scheduler" (eq .Values.mode "shadow") -}}
{{- printf "%s-%s" (.Release.Name | trunc 53 | trimSuffix "-") $part -}}
{{- end -}}
{{- end -}}

{{- define "bayplan.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "bayplan.name" .) -}}
{{- end -}}

{{- define "bayplan.selector" -}}
app.kubernetes.io/name: bayplan
app.kubernetes.io/instance: {{ include "bayplan.name" . }}
app.kubernetes.io/component: {{ ternary "shadow" "scheduler" (eq .Values.mode "shadow") }}
{{- end -}}

{{- define "bayplan.labels" -}}
{{ include "bayplan.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* The port that is served in this mode, and its name. */}}
{{- define "bayplan.port" -}}
{{- ternary .Values.shadowPort .Values.port (eq .Values.mode "shadow") -}}
{{- end -}}
{{- define "bayplan.portName" -}}
{{- ternary "http-metrics" "https-metrics" (eq .Values.mode "shadow") -}}
{{- end -}}

{{/* The Lease that schedulers elect their leader by; kube-scheduler's own in its place. */}}
{{- define "bayplan.leaseName" -}}
{{- $given := (.Values.scheduler.config.leaderElection | default dict).resourceName -}}
{{- $given | default (ternary "kube-scheduler" (include "bayplan.name" .) (eq .Values.mode "replace")) -}}
{{- end -}}
{{- define "bayplan.leaseNamespace" -}}
{{- $given := (.Values.scheduler.config.leaderElection | default dict).resourceNamespace -}}
{{- $given | default (ternary "kube-system" .Release.Namespace (eq .Values.mode "replace")) -}}
{{- end -}}

{{/* The KubeSchedulerConfiguration: the chart's, then what the values say. */}}
{{- define "bayplan.config" -}}
{{- $name := ternary .Values.scheduler.name "default-scheduler" (eq .Values.mode "second") -}}
{{- $config := dict "apiVersion" "kubescheduler.config.k8s.io/v1" "kind" "KubeSchedulerConfiguration" -}}
{{- $_ := set $config "profiles" (list (dict "schedulerName" $name)) -}}
{{- if ne .Values.mode "shadow" -}}
{{- $lease := dict "leaderElect" true "resourceName" (include "bayplan.leaseName" .) -}}
{{- $_ := set $lease "resourceNamespace" (include "bayplan.leaseNamespace" .) -}}
{{- $_ := set $config "leaderElection" $lease -}}
{{- end -}}
{{- toYaml (mergeOverwrite $config (deepCopy .Values.scheduler.config)) -}}
{{- end -}}
