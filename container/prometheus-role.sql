-- Role of the exporter in compose.yaml. It needs no rights.
\getenv password PROMETHEUS_PASSWORD
CREATE ROLE prometheus LOGIN PASSWORD :'password';
