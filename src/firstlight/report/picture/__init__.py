"""The wait-for graph as people see it: as a drawing, as a tree of text, and as a Mermaid diagram."""
