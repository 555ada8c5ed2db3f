{{/* What every pod of ours has in common. */}}
{{- define "outbox.pod" -}}
automountServiceAccountToken: false
# A service named "outbox" would put OUTBOX_PORT and more into the environment, where they are settings.
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- end -}}

{{- define "outbox.container" -}}
image: {{ include "outbox.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{/* The settings that say where Kafka is: of the worker and of the topics' job alike. */}}
{{- define "outbox.kafkaEnv" -}}
{{- with .Values.kafka -}}
- name: OUTBOX_BROKERS
  value: {{ required "kafka.brokers must name the bootstrap servers, HOST:PORT[,…]" .brokers | quote }}
- name: OUTBOX_PREFIX
  value: {{ .prefix | quote }}
- name: OUTBOX_PARTITIONS
  value: {{ .partitions | quote }}
- name: OUTBOX_REPLICATION
  value: {{ .replication | quote }}
- name: OUTBOX_SECURITY_PROTOCOL
  value: {{ .securityProtocol }}
{{- if hasPrefix "SASL_" .securityProtocol }}
{{- $secret := required "kafka.sasl.existingSecret must name a secret for a SASL protocol" .sasl.existingSecret }}
- name: OUTBOX_SASL_MECHANISM
  value: {{ .sasl.mechanism }}
- name: OUTBOX_SASL_USERNAME
  valueFrom:
    secretKeyRef:
      name: {{ $secret }}
      key: {{ .sasl.usernameKey }}
- name: OUTBOX_SASL_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ $secret }}
      key: {{ .sasl.passwordKey }}
{{- end }}
{{- if .tls.existingSecret }}
{{- with .tls.caKey }}
- name: OUTBOX_TLS_CA_FILE
  value: /etc/outbox/tls/{{ . }}
{{- end }}
{{- with .tls.certKey }}
- name: OUTBOX_TLS_CERT_FILE
  value: /etc/outbox/tls/{{ . }}
{{- end }}
{{- with .tls.keyKey }}
- name: OUTBOX_TLS_KEY_FILE
  value: /etc/outbox/tls/{{ . }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "outbox.volumeMounts" -}}
- name: tmp
  mountPath: /tmp
{{- if .Values.kafka.tls.existingSecret }}
- name: tls
  mountPath: /etc/outbox/tls
  readOnly: true
{{- end }}
{{- end -}}

{{- define "outbox.volumes" -}}
- name: tmp
  emptyDir:
    sizeLimit: 64Mi
{{- with .Values.kafka.tls.existingSecret }}
- name: tls
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- end -}}
