{{- /* The components that the values choose, in the order in which an overlay would list them. */ -}}
{{- define "classbind.components" -}}
{{- $components := list .Values.certificates }}
{{- range list "clientCertificates" "flowSchemas" "horizontalPodAutoscaler" "monitoring" "networkPolicy" "policies" "priority" }}
{{-   if (get $.Values .).enabled }}{{ $components = append $components (kebabcase .) }}{{ end }}
{{- end }}
{{- toJson $components }}
{{- end }}

{{- /* A file of the kustomizations, with the namespace of the release. */ -}}
{{- define "classbind.file" -}}
{{- $root := first . -}}
{{- $root.Files.Get (last .) | replace "classbind-system" $root.Release.Namespace }}
{{- end }}

{{- /* The Deployment with the patches of the components, which it reads from their kustomizations, and with the values. */ -}}
{{- define "classbind.deployment" -}}
{{- $deployment := list . "base/deployment.yaml" | include "classbind.file" | fromYaml }}
{{- $pod := $deployment.spec.template.spec }}
{{- $container := first $pod.containers }}
{{- range $component := include "classbind.components" . | fromJsonArray }}
{{-   range (printf "components/%s/kustomization.yaml" $component | $.Files.Get | fromYaml).patches }}
{{-     if .path }}
{{-       $patch := printf "components/%s/%s" $component .path | list $ | include "classbind.file" | fromYaml }}
{{-       $_ := mergeOverwrite $deployment.metadata $patch.metadata }}
{{-       $mounts := (first $patch.spec.template.spec.containers).volumeMounts }}
{{-       $_ := set $container "volumeMounts" (concat $mounts ($container.volumeMounts | default list)) }}
{{-       $_ := set $pod "volumes" (concat $patch.spec.template.spec.volumes ($pod.volumes | default list)) }}
{{-     else }}
{{-       range .patch | fromYamlArray }}
{{-         if eq .path "/spec/replicas" }}
{{-           $_ := unset $deployment.spec "replicas" }}
{{-         else if eq .path "/spec/template/spec/containers/0/args/-" }}
{{-           $_ := set $container "args" (append $container.args .value) }}
{{-         else if eq .path "/spec/template/spec/priorityClassName" }}
{{-           $_ := set $pod "priorityClassName" .value }}
{{-         else }}
{{-           fail (printf "The chart cannot patch %s, as the component %s does." .path $component) }}
{{-         end }}
{{-       end }}
{{-     end }}
{{-   end }}
{{- end }}
{{- with .Values.replicas }}{{ $_ := set $deployment.spec "replicas" . }}{{ end }}
{{- with .Values.image }}
{{-   $name := .repository }}
{{-   with .tag }}{{ $name = printf "%s:%s" $name . }}{{ end }}
{{-   with .digest }}{{ $name = printf "%s@%s" $name . }}{{ end }}
{{-   $_ := set $container "image" $name }}
{{-   with .pullPolicy }}{{ $_ := set $container "imagePullPolicy" . }}{{ end }}
{{- end }}
{{- with .Values.args }}{{ $_ := set $container "args" (concat $container.args .) }}{{ end }}
{{- with .Values.resources }}{{ $_ := set $container "resources" . }}{{ end }}
{{- with .Values.goMemLimit }}{{ $_ := set (first $container.env) "value" . }}{{ end }}
{{- with .Values.imagePullSecrets }}{{ $_ := set $pod "imagePullSecrets" . }}{{ end }}
{{- $_ := mergeOverwrite $pod .Values.pod }}
{{- toYaml $deployment }}
{{- end }}
