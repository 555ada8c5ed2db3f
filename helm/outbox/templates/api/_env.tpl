{{/* The API's own settings: who may ask, and over what. */}}
{{- define "outbox.apiEnv" -}}
{{- with .Values.api -}}
- name: OUTBOX_DATA_DIR
  value: /var/lib/outbox/data
- name: OUTBOX_API_ADDRESS
  value: 0.0.0.0:8080
- name: OUTBOX_API_METRICS_ADDRESS
  value: 0.0.0.0:8081
{{- with .tokens.existingSecret }}
- name: OUTBOX_API_TOKENS
  valueFrom:
    secretKeyRef:
      name: {{ . }}
      key: {{ $.Values.api.tokens.key }}
{{- end }}
{{- with .jwks.url }}
- name: OUTBOX_API_JWKS_URL
  value: {{ . | quote }}
- name: OUTBOX_API_JWKS_ISSUER
  value: {{ required "api.jwks.issuer must be the iss of the tokens" $.Values.api.jwks.issuer | quote }}
- name: OUTBOX_API_JWKS_AUDIENCE
  value: {{ required "api.jwks.audience must be the aud of the tokens" $.Values.api.jwks.audience | quote }}
{{- end }}
{{- if .tls.existingSecret }}
- name: OUTBOX_API_TLS_CERT_FILE
  value: /etc/outbox/api-tls/{{ .tls.certKey }}
- name: OUTBOX_API_TLS_KEY_FILE
  value: /etc/outbox/api-tls/{{ .tls.keyKey }}
{{- end }}
{{- with .providers }}
- name: OUTBOX_API_PROVIDERS
  value: {{ toJson . | quote }}
{{- end }}
{{- range $name, $value := .settings }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- with .secretSettings }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end -}}
